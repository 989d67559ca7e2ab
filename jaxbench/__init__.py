"""jaxbench: how distributed AI training behaves on a machine, measured with JAX."""

__version__ = "0.1.0"
