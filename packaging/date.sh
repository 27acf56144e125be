#!/bin/sh
# Prints the time that is written into artefacts, in seconds since 1970: that of the commit.
cd "$(dirname "$0")" && git log -1 --format=%ct
