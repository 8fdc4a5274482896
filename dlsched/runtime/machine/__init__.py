"""What is begun with a container, as one value and pure functions.

    handle(container, event, now_s) -> container, calls

`container.Container` holds all that was begun with one container and is not over. It changes by
events alone: `Unwanted` (the plan removes it), a call that nothing bars, `Listed` (its entry in the
last listing, in every cycle, so it is the timer, too) and `Ended` (a call ended, well or not). What
it asks for are calls: values that name what is to be done at the engine.
`runtime.docker.engine_calls` has what each of them does, and `runtime.docker.executor` makes them
in threads. Nothing here blocks, reads a clock or raises for what an engine does: the end of a call
that is not under way is logged, and changes nothing.

part       begun by                    goes by                     over with
---------  --------------------------  --------------------------  ---------------------------
stop       Unwanted                    stop.TABLE                  a listing without it
limits     SetLimits, SetMemory        one call                    its end; `Refused` may stay
record     Remember; Listed, where     one call: Remember, or      its end
           it is not managed, or is    Tidy
           held and altered
give back  GiveBack, ReleaseContainer  one call                    its end; `Refused` may stay
restart    Listed, policy differs      one call                    its end

"May I change it?" is `Container.bars`, moves apart, by the table `container.BARRED_BY`: beside what
each call, and a stop, is not begun. `handle` keeps to it: what is barred changes nothing.
`limits.Refused` is no bar to a stop.

A job is started without a container and moved with two, so what is begun for it is one `move.Job`.
It changes by turns (`move.Turn`): a start by `start.TABLE`, a move by the steps of `move.TABLE`.

So where a container dies in the middle of a change of its limits while the engine hangs: the call
is under way, which bars other changes; listings are old, and say nothing. Once the call has ended,
failed, another change may begin, until a listing shows that the container has ended. Its record of
what it had stays on the disk, for its next start or until two listings do not show it: then `Tidy`
asks the engine, and drops the record where the container is gone; else it changes the limits back.

`container.Machine` keeps the containers with which something was begun; a container of which it
has none is at rest. `container.validate` is for tests.
"""
