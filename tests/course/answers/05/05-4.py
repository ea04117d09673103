"""Wrong and right answers to exercise 05-4."""

WRONG = {
    "itself too": (
        """
def device0_traffic(devices, parameters, inputs, outputs):
    sent = devices * parameters + inputs + outputs
    return sent, devices * parameters + outputs
""",
        "Device 0 sends nothing to itself",
    ),
    "the whole batch to each": (
        """
def device0_traffic(devices, parameters, inputs, outputs):
    others = devices - 1
    return others * (parameters + inputs + outputs), others * (parameters + outputs)
""",
        "Each device gets its own piece of the batch",
    ),
    "the forward pass only": (
        """
def device0_traffic(devices, parameters, inputs, outputs):
    others = devices - 1
    return others * (parameters + inputs / devices), others * outputs / devices
""",
        "You forget that the outputs' gradient goes back",
    ),
    "parameters once": (
        """
def device0_traffic(devices, parameters, inputs, outputs):
    others = devices - 1
    pieces = others * (inputs + outputs) / devices
    return parameters + pieces, parameters + others * outputs / devices
""",
        "You send the parameters to one device only",
    ),
    "no gradient of the parameters": (
        """
def device0_traffic(devices, parameters, inputs, outputs):
    others = devices - 1
    sent = others * (parameters + (inputs + outputs) / devices)
    return sent, others * outputs / devices
""",
        "You forget that every replica sends back the gradient",
    ),
    "changed places": (
        """
def device0_traffic(devices, parameters, inputs, outputs):
    others = devices - 1
    sent = others * (parameters + (inputs + outputs) / devices)
    return others * (parameters + outputs / devices), sent
""",
        "Sent and received have changed places",
    ),
    "all together": (
        """
def device0_traffic(devices, parameters, inputs, outputs):
    return (devices - 1) * (2 * parameters + (inputs + 2 * outputs) / devices)
""",
        "It returns one number",
    ),
}

ANOTHER = """
def device0_traffic(devices, parameters, inputs, outputs):
    sent = received = 0
    for _ in range(1, devices):
        sent += inputs / devices + parameters + outputs / devices
        received += outputs / devices + parameters
    return [sent, received]
"""
