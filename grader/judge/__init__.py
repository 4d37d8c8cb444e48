"""The trusted side: it owns inputs, references, comparison, deadlines and verdicts. It never imports triton."""
