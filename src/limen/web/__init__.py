"""The page where a person names what the model has never seen, and the API behind it."""
