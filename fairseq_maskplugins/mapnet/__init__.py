"""MAP-Net: masks drawn from a learned proposal. See the README beside this file."""
