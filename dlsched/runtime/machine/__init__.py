"""What is begun with a container, as one value and pure functions.

    handle(container, event, now_s) -> container, calls

`container.Container` holds all that was begun with one container and is not over. It changes by
events alone: `Wanted` (an action of the plan), `Listed` (its entry in the last listing, in every
cycle, so it is the timer, too) and `Ended` (a call ended, well or not). What it asks for are calls:
values that name what is to be done at the engine. `runtime.docker.executor` makes them, and is the
only place of all this with threads. Nothing here blocks, reads a clock or raises for what an engine
does.

part         begun by                 its table         over with
-----------  -----------------------  ----------------  ------------------------------------------
stop         Wanted(Remove)           stop.TABLE        a listing without the container
restart      Listed, policy differs     one call          the end of its call

`container.Machine` keeps the containers with which something was begun; a container of which it
has none is at rest. `Machine.story` is for people, `container.validate` for tests.
"""
