"""Everything on one machine: `up` runs it, `demo` shows it, `drill` breaks it."""
