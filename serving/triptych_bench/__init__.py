"""Load generator, measurements and reports for inference servers: `triptych bench`, and functions for scripts of your own.

It sees a server from outside only: of this distribution it imports `triptych`, `triptych_client` and `triptych_text`.

    load.loops       run_closed_loop, run_open_loop: send requests with any call and get a log of each one
    machine          describe: processor, CPUs, system and versions of this machine
    server.process   ServerProcess: start a server of any kind, and end it with the block or with this process
    session          measure: a whole benchmark of a server, from a BenchmarkSpec to a Report
    reports          a Report as text, JSON, CSV and HTML
"""
