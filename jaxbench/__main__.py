"""`python -m jaxbench` is the command `jaxbench`."""

from jaxbench.cli.main import main

raise SystemExit(main())
