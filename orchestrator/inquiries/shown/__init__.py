"""Each noun of inquiries, described once for all faces."""
