"""The shop as a program: `python -m tests.integration.django COMMAND` prints what the command returns, as JSON."""

import json
import sys
from importlib import import_module

import django
from django.core.serializers.json import DjangoJSONEncoder

django.setup()  # Models are imported after it.
seen = import_module("tests.integration.django.program").COMMANDS[sys.argv[1]]()
print(json.dumps(seen, cls=DjangoJSONEncoder, indent=1, sort_keys=True))  # noqa: T201 -- the output of the program.
