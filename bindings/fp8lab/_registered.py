# SPDX-License-Identifier: Apache-2.0
"""The functions of the registered experiments; ``fp8lab._experiments.stub()`` gives their stub, ``_registered.pyi``."""

from fp8lab._experiments import function_of, registered

for _name, _facts in registered().items():
    if _facts["is_public"]:
        globals()[_name] = function_of(_facts)
