"""From the inputs of a prediction to a request, and from tokens to text."""
