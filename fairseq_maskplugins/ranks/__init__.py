"""Several processes: bad input on one of them ends in one line, and none waits for ever."""
