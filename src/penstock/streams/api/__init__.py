"""What the user writes: one mixin for each question, for Flux and for Mono."""
