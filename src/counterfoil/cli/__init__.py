"""The command line: `counterfoil NOUN VERB`."""
