"""Where sources, stages and observers meet: training, replay, evaluation."""
