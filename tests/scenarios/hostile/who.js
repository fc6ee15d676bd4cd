setTimeout(() => console.log(process.getuid()), 1000 * Number(process.argv[2]));
