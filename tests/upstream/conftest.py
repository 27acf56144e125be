"""mitmproxy's connections through modules, to other people's servers."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "tls"))  # certificates
