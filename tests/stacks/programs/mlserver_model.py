"""A model of MLServer that takes as long as it is asked to."""

import asyncio

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Tiny(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        given = NumpyCodec.decode_input(payload.inputs[0])
        await asyncio.sleep(float(given[0]))
        output = NumpyCodec.encode_output("slept", given)
        return InferenceResponse(model_name=self.name, outputs=[output])
