"""The process that runs users' functions: `python3 -m slime.host`, started by the program with a socket as descriptor 3.

docs/plugin_protocol.md is the contract of its frames. Reading order: service.py (what is called when), hooks.py (each hook
by its flag), records.py (samples on the wire), frames.py (bytes), tensors.py (the trainer's hooks), program.py (questions
to the program).
"""
