"""OpenAI's official client with Sennit: only its base URL changes.

The server runs here in a thread with a scripted model. Usually it is `sennit serve`, and the base
URL is http://127.0.0.1:8765/v1.
"""

from threading import Thread

from openai import OpenAI

from sennit.server import Server, ServerSettings, create_app, listen
from sennit.testing import ScriptedModel

script = ["The bowline.", "It holds, and comes undone.", "The sheet bend joins two ropes."]
settings = ServerSettings(url=":memory:", port=0, models=(ScriptedModel(script, name="sage"),))
listener = listen(settings)
server = Server(create_app(settings), settings)
thread = Thread(target=server.run, kwargs={"sockets": [listener]})
thread.start()

address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
with OpenAI(base_url=address, api_key="none") as client:
    first = client.responses.create(model="sage", input="Name a knot.")
    print(first.output_text)
    why = client.responses.create(
        model="sage", input="Why that one?", previous_response_id=first.id
    )
    print(why.output_text)
    other = client.responses.create(  # continuing it a second time makes a fork
        model="sage", input="Name another.", previous_response_id=first.id
    )
    print(other.output_text)

server.should_exit = True
thread.join()
