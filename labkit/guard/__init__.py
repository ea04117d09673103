"""Keep other users of this machine out; see README.md here. Imports nothing else of labkit."""
