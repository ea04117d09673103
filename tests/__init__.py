"""The tests of labkit."""
