# shellcheck shell=bash
# Sourced by examples: `python` is an interpreter with the packages of tools/build/requirements/agents.txt, in the project's virtual
# environment unless EXAMPLE_PYTHON names another one.

venv=${SLIME_VENV:-.venv}
python=${EXAMPLE_PYTHON:-$venv/bin/python}
if ! "$python" -c 'import jinja2, openai, transformers' 2>/dev/null; then
  [[ -x $python ]] || python3 -m venv "$venv"
  echo "==> installing Python packages of tools/build/requirements/agents.txt"
  "$python" -m pip install --quiet --disable-pip-version-check -r tools/build/requirements/agents.txt
fi
