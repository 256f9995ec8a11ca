"""One file per neighbour; each is imported only where one of the neighbour's objects is at hand."""
