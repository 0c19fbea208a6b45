"""What knows a language and no ids: files, sentences, marks, names, glossaries and documents."""
