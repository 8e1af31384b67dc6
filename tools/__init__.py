"""Regenerate what is generated: data tables, fixtures, schemas, the help in the README."""
