#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image: installs jaxpar where every user can read it.
set -euo pipefail
source=${AUTOGRADER:-/autograder}/source
python=python3
# Ubuntu 22.04 has Python 3.10 under that name.
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || python=python3.11
apt-get update
apt-get install -y bubblewrap "$python" "$python-venv"
"$python" -m venv /opt/jaxpar
/opt/jaxpar/bin/python -m pip install --no-cache-dir -c "$source/constraints.txt" "$source"/jaxpar-*.whl
chmod 600 "$source/course.secret"
