"""What goes wrong in chapter 01: {function: {what was done: the function that does it}}."""

from chain_specdec import accept, acceptance_probability, draft, expected_tokens, residual
from nanogpt.exact.slips import slips

WRONG = {
    "draft": slips(draft, {
        "every token is drafted from the root": ("drafter.logits(token)", "drafter.logits(root)"),
        "the kept distribution ignores the sampler": (
            "sampler(drafter.logits(token)).cpu()", "(logits := drafter.logits(token)).softmax(-1)",
            "dice.draw(draft_probs[-1])", "dice.draw(sampler(logits))"),
        "the tokens are argmaxes instead of draws": (
            "dice.draw(draft_probs[-1])", "int(draft_probs[-1].argmax())"),
    }),
    "acceptance_probability": slips(acceptance_probability, {
        "the ratio is upside down": (
            "target / draft if target < draft", "draft / target if draft < target"),
        "the draft probability is left out": (
            "return target / draft if target < draft else 1.0", "return target"),
        "the ratio is not capped at 1": (" if target < draft else 1.0", ""),
    }),
    "residual": slips(residual, {
        "the residual is not normalised": (
            "missing / total if total > 0 else target_probs", "missing"),
        "what the residual lacks to 1 falls to the last token": (
            "missing / total if total > 0 else target_probs",
            "torch.cat([missing[:-1], 1 - missing[:-1].sum()[None]])"),
        "the residual is the target itself": ("missing / total if total > 0 else ", ""),
        "the difference is taken the wrong way round": (
            "(target_probs - draft_probs)", "(draft_probs - target_probs)"),
        "the absolute difference is taken": (".clamp(min=0)", ".abs()"),
        "equal distributions are divided by zero": (" if total > 0 else target_probs", ""),
    }),
    "expected_tokens": slips(expected_tokens, {
        "the bonus token is left out": ("(1 - alpha ** (k + 1))", "(alpha - alpha ** (k + 1))",
                                        "k + 1.0", "k"),
        "the sum ends one term early": ("(k + 1))", "k)", "k + 1.0", "k"),
        "alpha = 1 divides by zero": ("k + 1.0 if alpha == 1 else ", ""),
    }),
    "accept": slips(accept, {
        "a rejected position draws from the target, without the residual": (
            "residual(target_probs[i], draft_probs[i])", "target_probs[i]"),
        "the bonus token comes from the row before the last": (
            "target_probs[len(drafted)])", "target_probs[len(drafted) - 1])"),
        "the drafts behind a rejected one are still judged": (
            "    for i, token", "    n = 0\n    for i, token",
            "if not dice", "if dice",
            "return i, dice.draw(residual(target_probs[i], draft_probs[i]))", "n += 1",
            "return len(drafted),", "return n,"),
        "the ratio is upside down": ("target_probs[i], draft_probs[i], token",
                                     "draft_probs[i], target_probs[i], token"),
        "the position in the chain is taken for the token": ("[i], token)", "[i], i)"),
    }),
}
