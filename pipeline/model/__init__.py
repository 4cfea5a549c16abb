"""A trained model as a value and a directory, its metrics, and the stages it is made into."""
