"""The command line. Decides nothing: it asks the rooms below and shows what they say."""
