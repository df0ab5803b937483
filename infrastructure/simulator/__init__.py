"""A provider to try operations on: a process of its own that misbehaves on request.

What a worker believes about the outside world can only be judged by what the outside world saw.
So this provider is no mock: it is reached over a socket, keeps its own record of every request
and every effect, and loses, delays and repeats answers as a plan tells it to.
"""
