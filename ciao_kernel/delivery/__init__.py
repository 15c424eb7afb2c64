"""What a program needs beside it: modules, files, variables, packages."""
