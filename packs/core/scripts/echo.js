// Parameters come as JSON on stdin; the result is the last line of stdout, as JSON.
"use strict";

const { readFileSync } = require("node:fs");

const parameters = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({ parameters, node: process.version }));
