"""Between a socket and Reactive Streams: what receives, what sends, and the asyncio protocol above both."""
