"""HTTP server: a web page and two APIs over translators, one for each pair of languages."""
