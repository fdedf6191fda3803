"""The command line tool ``maskplugins``."""
