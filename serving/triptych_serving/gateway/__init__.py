"""The HTTP gateway: the services as JSON, the APIs of other servers on top of them, and the playground.

For `triptych_serving.server`, which imports it only if a port for HTTP was chosen; nothing else imports starlette and uvicorn.
"""
