"""The model: acceptance, cost and speed-up of speculative decoding. numpy only."""
