"""The operators that are not fused into a loop: each is a stage with a queue, a timer or several sources."""
