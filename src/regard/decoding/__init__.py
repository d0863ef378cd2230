"""From logits to text: the Stepper contract and the strategies that drive it."""
