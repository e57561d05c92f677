"""The protocol without sockets: messages, and what each side makes of them."""
