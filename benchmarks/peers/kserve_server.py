"""KServe's own Python server, with a logistic regression of the numbers in a request; argument: its port."""

import sys

import numpy as np


def main(port: int) -> None:
    from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer

    class Logistic(Model):
        """Scores the numeric inputs of a request of the Open Inference Protocol."""

        def load(self) -> bool:
            self.ready = True
            return True

        async def predict(self, payload: InferRequest, *_: object, **__: object) -> InferResponse:
            numbers = np.column_stack([part.data for part in payload.inputs if part.datatype == "FP64"])
            scores = 1 / (1 + np.exp(-np.nan_to_num(numbers.astype(float)).sum(axis=1)))
            output = InferOutput("probability", [len(scores)], "FP64", data=scores.tolist())
            return InferResponse(payload.id or "1", self.name, infer_outputs=[output])

    model = Logistic("delays")
    model.load()
    ModelServer(http_port=port, enable_grpc=False, workers=1).start([model])


if __name__ == "__main__":
    main(int(sys.argv[1]))
