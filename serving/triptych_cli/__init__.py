"""The `triptych` command: one thin module a verb, each importing what it needs when it runs."""
