"""Knowledge of languages, without ids: files, sentences, marks, names, glossaries and documents."""
