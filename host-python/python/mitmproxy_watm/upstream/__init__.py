"""What mitmproxy connects to, through modules that dial."""
