"""OpenAI's protocol over agents: one request type, one source of events, two forms on the wire.

`requests` is what a caller asks, `chat` and `responses` are the forms that it comes and goes in, `runs` takes
it in and follows its run, `routes` are the endpoints.
"""
