"""The process that is measured: starting it, and watching what it uses."""
