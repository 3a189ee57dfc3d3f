"""Models as ONNX, with their preparation of features and their calibration: for servers without Python."""
