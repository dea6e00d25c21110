"""What learners write: for every blank five right answers, each in a style of its own, which must
be done, and five wrong ones that fit all examples, which must not; and wrong ones that a grader
once called done."""

import dataclasses
import re
import textwrap

import pytest

from grading import ExerciseFile, blanks_of, chapters, grade_answer, in_workshop
from make_exercises import exercise_source

IMPORTS = "import functools, heapq, itertools, math, operator, queue\nimport numpy as np\n"

ANSWERS = {
    # ------------------------------------------------------------ chapter 01
    "draft": """
        # right: a list that begins with the root
        tokens, rows = [root], []
        for i in range(k):
            rows.append(sampler(drafter.logits(tokens[i])))
            tokens.append(dice.draw(rows[i]))
        return tokens[1:], rows
        # right: recursion
        if k == 0:
            return [], []
        row = sampler(drafter.logits(root))
        token = dice.draw(row)
        tokens, rows = draft(drafter, token, k - 1, sampler, dice)
        return [token, *tokens], [row, *rows]
        # right: while, the last token looked up
        drafted, kept = [], []
        while len(drafted) < k:
            kept.append(sampler(drafter.logits(drafted[-1] if drafted else root)))
            drafted.append(dice.draw(kept[-1]))
        return drafted, kept
        # right: a generator of pairs
        def pairs(token):
            for _ in range(k):
                row = sampler(drafter.logits(token))
                token = dice.draw(row)
                yield token, row
        both = list(pairs(root))
        return [token for token, _ in both], [row for _, row in both]
        # right: reduce
        def step(so_far, _):
            row = sampler(drafter.logits(so_far[0][-1]))
            return [*so_far[0], dice.draw(row)], [*so_far[1], row]
        tokens, rows = functools.reduce(step, range(k), ([root], []))
        return tokens[1:], rows
        # wrong: never more than two drafts
        tokens, rows = [root], []
        for i in range(min(k, 2)):
            rows.append(sampler(drafter.logits(tokens[i])))
            tokens.append(dice.draw(rows[i]))
        return tokens[1:], rows
        # wrong: the third draft follows the root again
        tokens, rows = [root], []
        for i in range(k):
            rows.append(sampler(drafter.logits(tokens[i % 2])))
            tokens.append(dice.draw(rows[i]))
        return tokens[1:], rows
        # wrong: a temperature is 0 or 1
        tokens, rows = [root], []
        for i in range(k):
            logits = drafter.logits(tokens[i])
            rows.append(logits.softmax(-1) if sampler.temperature else sampler(logits))
            tokens.append(dice.draw(rows[i]))
        return tokens[1:], rows
        # wrong: top_k is dropped
        tokens, rows = [root], []
        for i in range(k):
            rows.append(type(sampler)(sampler.temperature)(drafter.logits(tokens[i])))
            tokens.append(dice.draw(rows[i]))
        return tokens[1:], rows
        # wrong: what is kept is rounded
        tokens, rows = [root], []
        for i in range(k):
            row = sampler(drafter.logits(tokens[i]))
            tokens.append(dice.draw(row))
            rows.append(torch.round(row, decimals=2))
        return tokens[1:], rows
    """,
    "acceptance_probability": """
        # right: min
        return min(1.0, float(target_probs[token]) / float(draft_probs[token]))
        # right: early return
        p, q = target_probs[token], draft_probs[token]
        if p >= q:
            return 1.0
        return float(p / q)
        # right: numpy, all tokens at once
        p, q = np.asarray(target_probs), np.asarray(draft_probs)
        return np.minimum(1, p / np.maximum(q, 1e-300))[token]
        # right: a tensor's clamp
        return (target_probs[token] / draft_probs[token]).clamp(max=1)
        # right: what both give, of what the drafter gives
        return torch.minimum(target_probs, draft_probs)[token] / draft_probs[token]
        # wrong: at least one half
        return max(0.5, min(1.0, float(target_probs[token]) / float(draft_probs[token])))
        # wrong: a token that the target likes is always accepted
        if target_probs[token] > 0.5:
            return 1.0
        return min(1.0, float(target_probs[token]) / float(draft_probs[token]))
        # wrong: only the first three tokens are judged
        if token > 2:
            return 1.0
        return min(1.0, float(target_probs[token]) / float(draft_probs[token]))
        # wrong: 0 / q is taken for 0 / 0
        if target_probs[token] == 0:
            return 1.0
        return min(1.0, float(target_probs[token]) / float(draft_probs[token]))
        # wrong: normalised over three tokens
        p = target_probs / target_probs[:3].sum()
        return min(1.0, float(p[token]) / float(draft_probs[token]))
    """,
    "residual": """
        # right: a list
        left = [max(float(p) - float(q), 0.0) for p, q in zip(target_probs, draft_probs)]
        total = sum(left)
        return torch.tensor([x / total for x in left]) if total else target_probs
        # right: relu
        left = torch.relu(target_probs - draft_probs)
        if left.sum() == 0:
            return target_probs
        return left / left.sum()
        # right: the larger of both, less the draft
        left = torch.maximum(target_probs, draft_probs) - draft_probs
        return left / left.sum() if left.any() else torch.full_like(left, 1 / len(left))
        # right: divided by 1 - alpha
        both = torch.minimum(target_probs, draft_probs)
        rejected = 1 - both.sum()
        return (target_probs - both) / rejected if rejected > 1e-9 else draft_probs
        # right: in place, on a copy
        left = target_probs.clone()
        left -= draft_probs
        left[left < 0] = 0
        left /= max(float(left.sum()), 1e-30)
        return left if left.sum() else target_probs
        # wrong: only the two tokens that lack most
        left = (target_probs - draft_probs).clamp(min=0)
        left[left < left.topk(2).values[-1]] = 0
        return left / left.sum() if left.sum() > 0 else target_probs
        # wrong: a token that was never drafted gets nothing
        left = (target_probs - draft_probs).clamp(min=0) * (draft_probs > 0)
        return left / left.sum() if left.sum() > 0 else target_probs
        # wrong: tokens behind the third are lost
        left = (target_probs - draft_probs).clamp(min=0)
        left[3:] = 0
        return left / left.sum() if left.sum() > 0 else target_probs
        # wrong: the target itself for larger vocabularies
        left = (target_probs - draft_probs).clamp(min=0)
        return left / left.sum() if left.sum() > 0 and len(left) < 4 else target_probs
        # wrong: what is small beside the largest is dropped
        left = (target_probs - draft_probs).clamp(min=0)
        left[left < left.max() / 6] = 0
        return left / left.sum() if left.sum() > 0 else target_probs
    """,
    "accept": """
        # right: while
        n = 0
        while n < len(drafted):
            if not dice.flip(acceptance_probability(target_probs[n], draft_probs[n], drafted[n])):
                return n, dice.draw(residual(target_probs[n], draft_probs[n]))
            n += 1
        return n, dice.draw(target_probs[n])
        # right: recursion on the rest
        if not drafted:
            return 0, dice.draw(target_probs[0])
        if not dice.flip(acceptance_probability(target_probs[0], draft_probs[0], drafted[0])):
            return 0, dice.draw(residual(target_probs[0], draft_probs[0]))
        n, token = accept(drafted[1:], draft_probs[1:], target_probs[1:], dice)
        return n + 1, token
        # right: break and else
        for n, (token, p, q) in enumerate(zip(drafted, target_probs, draft_probs)):
            if not dice.flip(acceptance_probability(p, q, token)):
                last = residual(p, q)
                break
        else:
            n, last = len(drafted), target_probs[-1]
        return n, dice.draw(last)
        # right: the first failure, looked for
        passed = (dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token))
                  for i, token in enumerate(drafted))
        n = next((i for i, good in enumerate(passed) if not good), len(drafted))
        left = residual(target_probs[n], draft_probs[n]) if n < len(drafted) else target_probs[n]
        return n, dice.draw(left)
        # right: takewhile
        pairs = zip(drafted, target_probs, draft_probs)
        good = itertools.takewhile(lambda x: dice.flip(acceptance_probability(x[1], x[2], x[0])),
                                   pairs)
        n = len(list(good))
        if n == len(drafted):
            return n, dice.draw(target_probs[n])
        return n, dice.draw(residual(target_probs[n], draft_probs[n]))
        # wrong: two coins at most
        for i, token in enumerate(drafted[:2]):
            if not dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token)):
                return i, dice.draw(residual(target_probs[i], draft_probs[i]))
        return len(drafted), dice.draw(target_probs[len(drafted)])
        # wrong: the bonus token comes from row 2
        for i, token in enumerate(drafted):
            if not dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token)):
                return i, dice.draw(residual(target_probs[i], draft_probs[i]))
        return len(drafted), dice.draw(target_probs[min(len(drafted), 2)])
        # wrong: the third rejection draws from the target
        for i, token in enumerate(drafted):
            if not dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token)):
                left = residual(target_probs[i], draft_probs[i]) if i < 2 else target_probs[i]
                return i, dice.draw(left)
        return len(drafted), dice.draw(target_probs[len(drafted)])
        # wrong: a single draft needs no coin
        if len(drafted) == 1:
            return 1, dice.draw(target_probs[1])
        for i, token in enumerate(drafted):
            if not dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token)):
                return i, dice.draw(residual(target_probs[i], draft_probs[i]))
        return len(drafted), dice.draw(target_probs[len(drafted)])
        # wrong: the third residual is of the row before
        for i, token in enumerate(drafted):
            if not dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token)):
                return i, dice.draw(residual(target_probs[i], draft_probs[min(i, 1)]))
        return len(drafted), dice.draw(target_probs[len(drafted)])
    """,
    "speculate_chain": """
        # right: the text's new tokens in one list
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root], 0)
        while 1:
            if context.full:
                context.begin(drafter)
            drafted, rows_q = draft(drafter, root, min(k, context.room), sampler, dice)
            rows_p, hidden = verify(context, root, drafted, sampler)
            n, last = (rule or accept)(drafted, rows_q, rows_p, dice)
            written = [root] + drafted[:n] + [last]
            context.commit([i for i in range(n + 1)], written[:-1])
            drafter.observe(written[:-1], hidden, list(range(n + 1)))
            yield Step(written[1:], len(drafted))
            root = written[-1]
        # right: told behind the yield
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        while True:
            if context.full:
                context.begin(drafter)
            drafted, draft_probs = draft(drafter, root, min(k, context.room), sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            yield Step(drafted[:n] + [token], len(drafted))
            kept = [root] + drafted[:n]
            context.commit(list(range(len(kept))), kept)
            drafter.observe(kept, hidden, list(range(len(kept))))
            root = token
        # right: a function for a round
        context = Context(target, prompt)
        def one_round(root):
            drafted, q = draft(drafter, root, min(k, context.room), sampler, dice)
            p, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, q, p, dice)
            tokens, rows = [root, *drafted[:n]], list(range(1 + n))
            context.commit(rows, tokens)
            drafter.observe(tokens, hidden, rows)
            return Step([*tokens[1:], token], len(drafted))
        step = Step([dice.draw(sampler(context.begin(drafter)))])
        while True:
            yield step
            if context.full:
                context.begin(drafter)
            step = one_round(step.tokens[-1])
        # right: a full window is looked for at the end of a round
        context, tokens = Context(target, prompt), []
        tokens.append(dice.draw(sampler(context.begin(drafter))))
        yield Step(tokens[:])
        if context.full:
            context.begin(drafter)
        while True:
            most = k if k < context.room else context.room
            drafted, draft_probs = draft(drafter, tokens[-1], most, sampler, dice)
            target_probs, hidden = verify(context, tokens[-1], drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            kept = [tokens[-1], *drafted[:n]]
            context.commit(list(range(n + 1)), kept)
            drafter.observe(kept, hidden, list(range(n + 1)))
            tokens += [*drafted[:n], token]
            yield Step(tokens[-n - 1:], len(drafted))
            if context.full:
                context.begin(drafter)
        # right: for, without end
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        for _ in itertools.count():
            if context.room < 0:
                context.begin(drafter)
            drafted, draft_probs = draft(drafter, root, min(k, context.room), sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            rows = list(range(n + 1))
            context.commit(rows, [root, *drafted][:n + 1])
            drafter.observe([root, *drafted][:n + 1], hidden, rows)
            yield Step([*drafted, 0][:n] + [token], len(drafted))
            root = token
        # wrong: never more than three drafts
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        while True:
            if context.full:
                context.begin(drafter)
            drafted, draft_probs = draft(drafter, root, min(3, k, context.room), sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            tokens, rows = [root, *drafted[:n]], list(range(n + 1))
            context.commit(rows, tokens)
            drafter.observe(tokens, hidden, rows)
            yield Step([*drafted[:n], token], len(drafted))
            root = token
        # wrong: the sixth round keeps its rejected rows
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        rounds = 0
        while True:
            rounds += 1
            if context.full:
                context.begin(drafter)
            drafted, draft_probs = draft(drafter, root, min(k, context.room), sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            tokens, rows = [root, *drafted[:n]], list(range(n + 1))
            context.commit(list(range(len(drafted) + (rounds > 5))) if rounds > 5 else rows, tokens)
            drafter.observe(tokens, hidden, rows)
            yield Step([*drafted[:n], token], len(drafted))
            root = token
        # wrong: never fewer than two drafts
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        while True:
            if context.full:
                context.begin(drafter)
            drafted, draft_probs = draft(drafter, root, min(max(k, 2), context.room), sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            tokens, rows = [root, *drafted[:n]], list(range(n + 1))
            context.commit(rows, tokens)
            drafter.observe(tokens, hidden, rows)
            yield Step([*drafted[:n], token], len(drafted))
            root = token
        # wrong: no drafts from the sixth round on
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        rounds = 0
        while True:
            rounds += 1
            if context.full:
                context.begin(drafter)
            most = min(k, context.room if rounds < 6 else 0)
            drafted, draft_probs = draft(drafter, root, most, sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            tokens, rows = [root, *drafted[:n]], list(range(n + 1))
            context.commit(rows, tokens)
            drafter.observe(tokens, hidden, rows)
            yield Step([*drafted[:n], token], len(drafted))
            root = token
        # wrong: two drafts where there is a choice
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        while True:
            if context.full:
                context.begin(drafter)
            most = min(k if k == 3 else 2, context.room)
            drafted, draft_probs = draft(drafter, root, most, sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            tokens, rows = [root, *drafted[:n]], list(range(n + 1))
            context.commit(rows, tokens)
            drafter.observe(tokens, hidden, rows)
            yield Step([*drafted[:n], token], len(drafted))
            root = token
        # once done: the root is drawn anew when the window slides
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        while True:
            if context.full:
                root = dice.draw(sampler(context.begin(drafter)))
            drafted, draft_probs = draft(drafter, root, min(k, context.room), sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = (rule or accept)(drafted, draft_probs, target_probs, dice)
            tokens, rows = [root, *drafted[:n]], list(range(n + 1))
            context.commit(rows, tokens)
            drafter.observe(tokens, hidden, rows)
            yield Step([*drafted[:n], token], len(drafted))
            root = token
        # once done: no other rule is asked
        context = Context(target, prompt)
        root = dice.draw(sampler(context.begin(drafter)))
        yield Step([root])
        while True:
            if context.full:
                context.begin(drafter)
            drafted, draft_probs = draft(drafter, root, min(k, context.room), sampler, dice)
            target_probs, hidden = verify(context, root, drafted, sampler)
            n, token = accept(drafted, draft_probs, target_probs, dice)
            tokens, rows = [root, *drafted[:n]], list(range(n + 1))
            context.commit(rows, tokens)
            drafter.observe(tokens, hidden, rows)
            yield Step([*drafted[:n], token], len(drafted))
            root = token
    """,
    # ------------------------------------------------------------ chapter 02
    "ancestor_mask": """
        # right: the parent's row, and oneself
        mask = torch.eye(len(parents), dtype=torch.bool)
        for row in range(1, len(parents)):
            mask[row] |= mask[parents[row]]
        return mask
        # right: climb from each row
        mask = torch.zeros(len(parents), len(parents), dtype=torch.bool)
        for row in range(len(parents)):
            up = row
            while up >= 0:
                mask[row, up] = True
                up = int(parents[up])
        return mask
        # right: a power of the matrix
        n = len(parents)
        steps = np.eye(n)
        steps[np.arange(1, n), parents.numpy()[1:]] = 1
        return torch.from_numpy(np.linalg.matrix_power(steps, n) > 0)
        # right: sets, by recursion
        def above(row):
            return {row} | above(int(parents[row])) if row >= 0 else set()
        rows = range(len(parents))
        return torch.tensor([[column in above(row) for column in rows] for row in rows])
        # right: lists of lists
        seen = []
        for row, parent in enumerate(parents.tolist()):
            seen.append([row] if parent < 0 else seen[parent] + [row])
        mask = torch.zeros(len(seen), len(seen))
        for row, columns in enumerate(seen):
            mask[row, columns] = 1
        return mask > 0
        # wrong: three steps up at most
        mask = torch.zeros(len(parents), len(parents), dtype=torch.bool)
        for row in range(len(parents)):
            up = row
            for _ in range(4):
                if up >= 0:
                    mask[row, up] = True
                    up = int(parents[up])
        return mask
        # wrong: squared twice
        n = len(parents)
        steps = np.eye(n)
        steps[np.arange(1, n), parents.numpy()[1:]] = 1
        return torch.from_numpy(np.linalg.matrix_power(steps, 4) > 0)
        # wrong: parent, grandparent and root
        mask = torch.eye(len(parents), dtype=torch.bool)
        mask[:, 0] = True
        for row in range(1, len(parents)):
            parent = int(parents[row])
            mask[row, parent] = mask[row, max(int(parents[parent]), 0)] = True
        return mask
        # wrong: row 6 and later see everything before them
        mask = torch.eye(len(parents), dtype=torch.bool)
        for row in range(1, len(parents)):
            mask[row] |= mask[parents[row]]
            mask[row, :row] |= row > 5
        return mask
        # wrong: a root alone does not see itself
        mask = torch.eye(len(parents), dtype=torch.bool)
        for row in range(1, len(parents)):
            mask[row] |= mask[parents[row]]
        return mask if len(parents) > 1 else ~mask
        # once done: sixteen steps up at most
        steps = torch.eye(len(parents))
        steps[range(1, len(parents)), parents[1:]] = 1
        for _ in range(4):
            steps = steps @ steps
        return steps > 0
    """,
    "verify": """
        # right: depths, and the mask
        return context.verify(tree.tokens.tolist(), sampler, tree.depths + context.cache.length,
                              tree.mask)
        # right: climb and count
        depths = [0]
        for parent in tree.parents.tolist()[1:]:
            depths.append(depths[parent] + 1)
        start = context.cache.length
        return context.verify(list(map(int, tree.tokens)), sampler,
                              torch.tensor([start + depth for depth in depths]), tree.mask)
        # right: positions from the mask, which is built here
        n = len(tree)
        mask = torch.eye(n, dtype=torch.bool)
        for row in range(1, n):
            mask[row] = mask[row] | mask[tree.parents[row]]
        return context.verify(tree.tokens.tolist(), sampler,
                              context.cache.length - 1 + mask.sum(1), mask)
        # right: a chain needs neither
        tokens, N = tree.tokens.tolist(), len(tree)
        if tree.parents.tolist() == list(range(-1, N - 1)):
            return context.verify(tokens, sampler)
        return context.verify(tokens, sampler, positions=context.cache.length + tree.depths,
                              mask=tree.mask)
        # right: levels
        positions = torch.full((len(tree),), context.cache.length)
        level, deep = [0], 0
        while level:
            positions[level] += deep
            level, deep = [c for row in level for c in tree.children[row]], deep + 1
        found = context.verify(tree.tokens.tolist(), sampler, positions, tree.mask)
        return found[0], found[1]
        # wrong: three levels at most
        positions = context.cache.length + tree.depths.clamp(max=2)
        return context.verify(tree.tokens.tolist(), sampler, positions, tree.mask)
        # wrong: a text without rows is taken for one of a row
        positions = max(context.cache.length, 1) + tree.depths
        return context.verify(tree.tokens.tolist(), sampler, positions, tree.mask)
        # wrong: parent, grandparent and root are seen
        n = len(tree)
        mask = torch.eye(n, dtype=torch.bool)
        mask[:, 0] = True
        for row in range(1, n):
            parent = int(tree.parents[row])
            mask[row, parent] = mask[row, max(int(tree.parents[parent]), 0)] = True
        positions = context.cache.length + tree.depths
        return context.verify(tree.tokens.tolist(), sampler, positions, mask)
        # wrong: row 6 and later stand where the row before them stands
        positions = context.cache.length + tree.depths
        positions[6:] = positions[5:-1]
        return context.verify(tree.tokens.tolist(), sampler, positions, tree.mask)
        # wrong: two rows are a root and its sibling
        positions = context.cache.length + (tree.depths if len(tree) != 2 else 0 * tree.depths)
        return context.verify(tree.tokens.tolist(), sampler, positions, tree.mask)
        # once done: a mask of 0. and 1.
        return context.verify(tree.tokens.tolist(), sampler, context.cache.length + tree.depths,
                              tree.mask.float())
        # once done: a mask of 0 and 1
        return context.verify(tree.tokens.tolist(), sampler, context.cache.length + tree.depths,
                              tree.mask.int())
        # once done: positions with a point
        return context.verify(tree.tokens.tolist(), sampler,
                              (context.cache.length + tree.depths).float(), tree.mask)
    """,
    "walk": """
        # right: a dictionary of the children
        path = [0]
        while True:
            rows = {int(tree.tokens[c]): c for c in reversed(tree.children[path[-1]])}
            token = dice.draw(target_probs[path[-1]])
            if token not in rows:
                return path, token
            path.append(rows[token])
        # right: recursion
        def down(path):
            token = dice.draw(target_probs[path[-1]])
            for child in tree.children[path[-1]]:
                if tree.tokens[child] == token:
                    return down(path + [child])
            return path, token
        return down([0])
        # right: all rows draw first
        tokens, path = [dice.draw(row) for row in target_probs], [0]
        while True:
            for child in tree.children[path[-1]]:
                if int(tree.tokens[child]) == tokens[path[-1]]:
                    path.append(child)
                    break
            else:
                return path, tokens[path[-1]]
        # right: next with a default
        node, path = 0, []
        while node is not None:
            path.append(node)
            token = dice.draw(target_probs[node])
            node = next((c for c in tree.children[node] if tree.tokens[c] == token), None)
        return path, token
        # right: a coin for each child, the rest renormalised
        path, left = [0], target_probs[0].double()
        while True:
            for child in tree.children[path[-1]]:
                token = int(tree.tokens[child])
                if left[token] > 0 and dice.flip(min(float(left[token] / left.sum()), 1.0)):
                    path.append(child)
                    left = target_probs[child].double()
                    break
                left = left.clone()
                left[token] = 0
            else:
                return path, dice.draw(left if left.sum() > 0 else target_probs[path[-1]])
        # wrong: two levels at most
        path = [0]
        while True:
            token = dice.draw(target_probs[path[-1]])
            found = [c for c in tree.children[path[-1]] if tree.tokens[c] == token]
            if not found or len(path) == 3:
                return path, token
            path.append(found[0])
        # wrong: only two children are looked at
        path = [0]
        while True:
            token = dice.draw(target_probs[path[-1]])
            found = [c for c in tree.children[path[-1]][:2] if tree.tokens[c] == token]
            if not found:
                return path, token
            path.append(found[0])
        # wrong: a child of any node of the path
        path = [0]
        while True:
            token = dice.draw(target_probs[path[-1]])
            found = [c for row in path for c in tree.children[row]
                     if tree.tokens[c] == token and c not in path]
            if not found:
                return path, token
            path.append(found[-1])
        # wrong: a leaf gives its favourite
        path = [0]
        while True:
            probs = target_probs[path[-1]]
            below = tree.children[path[-1]]
            token = dice.draw(probs) if below else int(probs.argmax())
            found = [c for c in below if tree.tokens[c] == token]
            if not found:
                return path, token
            path.append(found[0])
        # wrong: below the root the favourite decides
        path = [0]
        while True:
            probs = target_probs[path[-1]]
            token = int(probs.argmax()) if path[1:] else dice.draw(probs)
            found = [c for c in tree.children[path[-1]] if tree.tokens[c] == token]
            if not found:
                return path, token
            path.append(found[0])
    """,
    "commit": """
        # right: fancy indexing copies
        start = self.length
        chosen = self.kv[..., [start + row for row in rows], :]
        self.kv[..., start:start + len(rows), :] = chosen
        self.length += len(rows)
        # right: a copy, and a loop
        old = self.kv.clone()
        for place, row in enumerate(rows):
            self.kv[..., self.length + place, :] = old[..., self.length + row, :]
        self.length = self.length + len(rows)
        # right: a new tensor
        end = self.length + len(rows)
        new = [self.kv[..., self.length + row, :].unsqueeze(-2) for row in rows]
        self.kv = torch.cat([self.kv[..., :self.length, :], *new, self.kv[..., end:, :]], -2)
        self.length = end
        # right: numpy
        kv, end = self.kv.numpy(), self.length + len(rows)
        kv[..., self.length:end, :] = np.take(kv, np.array(rows) + self.length, axis=-2)
        self.length = end
        # right: index_copy_
        places = torch.arange(self.length, self.length + len(rows))
        chosen = self.kv.index_select(-2, torch.tensor(rows) + self.length)
        self.kv.index_copy_(-2, places, chosen)
        self.length += len(rows)
        # wrong: in place, from the end if the rows are not rising
        order = list(enumerate(rows))
        for place, row in order if rows == sorted(rows) else reversed(order):
            self.kv[..., self.length + place, :] = self.kv[..., self.length + row, :]
        self.length += len(rows)
        # wrong: two rows are committed before
        chosen = self.kv[..., [2 + row for row in rows], :]
        self.kv[..., 2:2 + len(rows), :] = chosen
        self.length += len(rows)
        # wrong: the first layer only
        start = self.length
        self.kv[0, ..., start:start + len(rows), :] = self.kv[0][..., [start + r for r in rows], :]
        self.length += len(rows)
        # wrong: the first head only
        start = self.length
        chosen = self.kv[:, :, :, :1, [start + row for row in rows]]
        self.kv[:, :, :, :1, start:start + len(rows)] = chosen
        self.length += len(rows)
        # wrong: three rows at most
        start, rows = self.length, rows[:3]
        self.kv[..., start:start + len(rows), :] = self.kv[..., [start + row for row in rows], :]
        self.length += len(rows)
    """,
    "draw_without_replacement": """
        # right: a list of what is left
        left, drawn = probs.clone(), []
        for _ in range(n):
            if not left.any():
                break
            drawn.append(dice.draw(left))
            left[drawn[-1]] = 0
        return drawn
        # right: recursion
        if n == 0 or probs.sum() == 0:
            return []
        token = dice.draw(probs / probs.sum())
        rest = probs.clone()
        rest[token] = 0
        return [token, *draw_without_replacement(rest, n - 1, dice)]
        # right: a mask of those that came
        free, drawn = torch.ones_like(probs), []
        while len(drawn) < n and (probs * free).sum() > 0:
            drawn.append(dice.draw(probs * free / (probs * free).sum()))
            free[drawn[-1]] = 0
        return drawn
        # right: at most as many as can come
        drawn = []
        for _ in range(min(n, int((probs > 0).sum()))):
            left = torch.tensor([0.0 if t in drawn else float(q) for t, q in enumerate(probs)])
            drawn.append(dice.draw(left))
        return drawn
        # right: positions among the remaining tokens
        tokens, drawn = [t for t in range(len(probs)) if probs[t] > 0], []
        while tokens and len(drawn) < n:
            q = probs[tokens]
            drawn.append(tokens.pop(dice.draw(q / q.sum())))
        return drawn
        # wrong: never more than two
        left, drawn = probs.clone(), []
        while len(drawn) < min(n, 2) and left.sum() > 0:
            drawn.append(dice.draw(left / left.sum()))
            left[drawn[-1]] = 0
        return drawn
        # wrong: the third is the favourite
        left, drawn = probs.clone(), []
        while len(drawn) < n and left.sum() > 0:
            drawn.append(dice.draw(left) if len(drawn) < 2 else int(left.argmax()))
            left[drawn[-1]] = 0
        return drawn
        # wrong: the third is drawn as if the first had never come
        left, drawn = probs.clone(), []
        while len(drawn) < n and left.sum() > 0:
            drawn.append(dice.draw(left))
            left = probs.clone()
            left[drawn[-2:]] = 0
            if len(drawn) == 2:
                left[drawn[0]] = probs[drawn[0]] * (left.sum() > 0)
        return drawn
        # wrong: what is improbable never comes
        left, drawn = torch.where(probs < 1e-3, 0, probs), []
        while len(drawn) < n and left.sum() > 0:
            drawn.append(dice.draw(left))
            left[drawn[-1]] = 0
        return drawn
        # wrong: sorted, where there are more than two
        left, drawn = probs.clone(), []
        while len(drawn) < n and left.sum() > 0:
            drawn.append(dice.draw(left))
            left[drawn[-1]] = 0
        return drawn if len(drawn) < 3 else sorted(drawn)
        # once done: what is left is counted down from 1
        probs, drawn, left = probs.clone(), [], 1.0
        while len(drawn) < n and left > 0:
            drawn.append(dice.draw(probs))
            left -= float(probs[drawn[-1]])
            probs[drawn[-1]] = 0
        return drawn
        # once done: 1 less what came
        drawn = []
        while len(drawn) < n and 1 - float(probs[drawn].sum()) > 0:
            left = probs.clone()
            left[drawn] = 0
            drawn.append(dice.draw(left))
        return drawn
    """,
    "multi_round": """
        # right: a flag
        path = [0]
        while True:
            node, found = path[-1], False
            p, q = target_probs[node], None
            for child in tree.children[node]:
                q = tree.draft_probs[node].clone() if q is None else q
                token = int(tree.tokens[child])
                if dice.flip(acceptance_probability(p, q, token)):
                    path.append(child)
                    found = True
                    break
                p = residual(p, q)
                q[token] = 0
                q = q / q.sum()
            if not found:
                return path, dice.draw(p)
        # right: recursion
        def down(path):
            node = path[-1]
            p = target_probs[node]
            gone = []
            for child in tree.children[node]:
                q = tree.draft_probs[node].clone()
                q[gone] = 0
                q /= q.sum()
                token = int(tree.tokens[child])
                if dice.flip(acceptance_probability(p, q, token)):
                    return down([*path, child])
                p = residual(p, q)
                gone.append(token)
            return path, dice.draw(p)
        return down([0])
        # right: numpy, without the helpers
        path, node = [], 0
        while node is not None:
            path.append(node)
            p, here = target_probs[node].double().numpy(), node
            q = tree.draft_probs[node].double().numpy().copy() if tree.children[node] else None
            node = None
            for child in tree.children[here]:
                token = int(tree.tokens[child])
                if dice.flip(min(1.0, p[token] / q[token])):
                    node = child
                    break
                p = np.maximum(p - q, 0)
                p = p / p.sum()
                q[token] = 0
                q = q / max(q.sum(), 1e-300)
        return path, dice.draw(torch.from_numpy(p))
        # right: q is normalised only where it is needed
        path = [0]
        while True:
            p, children = target_probs[path[-1]], tree.children[path[-1]]
            raw = tree.draft_probs[path[-1]].clone() if children else None
            for child in children:
                token, q = int(tree.tokens[child]), raw / raw.sum()
                if dice.flip(acceptance_probability(p, q, token)):
                    break
                p = residual(p, q)
                raw[token] = 0
            else:
                return path, dice.draw(p)
            path.append(child)
        # right: one node, in a function of its own
        def judge(node):
            p, q = target_probs[node], None
            for child in tree.children[node]:
                if q is None:
                    q = tree.draft_probs[node]
                token = int(tree.tokens[child])
                if dice.flip(acceptance_probability(p, q, token)):
                    return child, None
                p, q = residual(p, q), torch.where(torch.arange(len(q)) == token, 0, q)
                q = q / q.sum()
            return None, p
        path = [0]
        while (step := judge(path[-1]))[0] is not None:
            path.append(step[0])
        return path, dice.draw(step[1])
        # wrong: two children at most
        path = [0]
        while True:
            p, children = target_probs[path[-1]], tree.children[path[-1]][:2]
            raw = tree.draft_probs[path[-1]].clone() if children else None
            for child in children:
                token, q = int(tree.tokens[child]), raw / raw.sum()
                if dice.flip(acceptance_probability(p, q, token)):
                    break
                p = residual(p, q)
                raw[token] = 0
            else:
                return path, dice.draw(p)
            path.append(child)
        # wrong: below the root, the first child alone
        path = [0]
        while True:
            p, children = target_probs[path[-1]], tree.children[path[-1]]
            children = children[:1] if path[1:] else children
            raw = tree.draft_probs[path[-1]].clone() if children else None
            for child in children:
                token, q = int(tree.tokens[child]), raw / raw.sum()
                if dice.flip(acceptance_probability(p, q, token)):
                    break
                p = residual(p, q)
                raw[token] = 0
            else:
                return path, dice.draw(p)
            path.append(child)
        # wrong: below the root, the end draws from the target
        path = [0]
        while True:
            p, children = target_probs[path[-1]], tree.children[path[-1]]
            raw = tree.draft_probs[path[-1]].clone() if children else None
            for child in children:
                token, q = int(tree.tokens[child]), raw / raw.sum()
                if dice.flip(acceptance_probability(p, q, token)):
                    break
                p = residual(p, q)
                raw[token] = 0
            else:
                return path, dice.draw(target_probs[path[-1]] if path[1:] else p)
            path.append(child)
        # wrong: the root's draft_probs everywhere
        path = [0]
        while True:
            p, children = target_probs[path[-1]], tree.children[path[-1]]
            raw = tree.draft_probs[0].clone() if children else None
            for child in children:
                token, q = int(tree.tokens[child]), raw / raw.sum()
                if dice.flip(acceptance_probability(p, q, token)):
                    break
                p = residual(p, q)
                raw[token] = 0
            else:
                return path, dice.draw(p)
            path.append(child)
        # wrong: q is normalised after the first rejection only
        path = [0]
        while True:
            p, children = target_probs[path[-1]], tree.children[path[-1]]
            q = tree.draft_probs[path[-1]].clone() if children else None
            for number, child in enumerate(children):
                token = int(tree.tokens[child])
                if dice.flip(acceptance_probability(p, q, token)):
                    break
                p = residual(p, q)
                q[token] = 0
                q = q / q.sum() if number == 0 else q
            else:
                return path, dice.draw(p)
            path.append(child)
    """,
    # ------------------------------------------------------------ chapter 03
    "best_nodes": """
        # right: sorted by falling score, then row
        ranked = sorted(range(1, len(scores)), key=lambda row: (-scores[row], row))
        return sorted([0] + ranked[:budget])
        # right: nlargest
        kept = heapq.nlargest(budget, range(1, len(scores)), key=lambda row: scores[row])
        return [0, *sorted(kept)]
        # right: numpy
        order = np.argsort(-np.array(scores[1:]), kind="stable")[:budget] + 1
        return [0, *np.sort(order).tolist()]
        # right: take the best again and again
        rows, kept = list(range(1, len(scores))), [0]
        while rows and len(kept) <= budget:
            best = max(rows, key=lambda row: scores[row])
            rows.remove(best)
            kept.append(best)
        return sorted(kept)
        # right: how many are better
        def place(row):
            return sum((scores[other], -other) > (scores[row], -row)
                       for other in range(1, len(scores)))
        return [row for row in range(len(scores)) if row == 0 or place(row) < budget]
        # wrong: never more than three
        ranked = sorted(range(1, len(scores)), key=lambda row: -scores[row])
        return sorted([0] + ranked[:min(budget, 3)])
        # wrong: rounded
        ranked = sorted(range(1, len(scores)), key=lambda row: -round(scores[row], 1))
        return sorted([0] + ranked[:budget])
        # wrong: the hopeless are left out
        ranked = sorted(range(1, len(scores)), key=lambda row: -scores[row])
        return sorted([0] + [row for row in ranked[:budget] if scores[row] > -2.5])
        # wrong: the first four nodes
        ranked = sorted(range(1, len(scores))[:4], key=lambda row: -scores[row])
        return sorted([0] + ranked[:budget])
        # wrong: a large budget pays for the root
        ranked = sorted(range(1, len(scores)), key=lambda row: -scores[row])
        return sorted([0] + ranked[:budget - (budget > 3)])
    """,
    "rounds_of": """
        # right: a generator
        def rounds(at):
            while at in lengths:
                yield lengths[at]
                at += 1 + lengths[at]
        return list(rounds(min(lengths)))
        # right: recursion
        def rest(root):
            return [lengths[root], *rest(root + lengths[root] + 1)] if root in lengths else []
        return rest(sorted(lengths)[0])
        # right: for, over all positions
        accepted, root = [], min(lengths)
        for position, n in sorted(lengths.items()):
            if position == root:
                accepted.append(n)
                root = position + n + 1
        return accepted
        # right: get
        root, found = next(iter(lengths)), []
        while (n := lengths.get(root)) is not None:
            found += [n]
            root = root + n + 1
        return found
        # right: a list in place of the dictionary
        first, last = min(lengths), max(lengths)
        values, i, found = [lengths[p] for p in range(first, last + 1)], 0, []
        while i < len(values):
            found.append(values[i])
            i += values[i] + 1
        return found
        # wrong: three rounds at most
        accepted, root = [], min(lengths)
        while root in lengths and len(accepted) < 3:
            accepted.append(lengths[root])
            root += 1 + accepted[-1]
        return accepted
        # wrong: two drafts at most move on, after the first round
        accepted, root = [], min(lengths)
        while root in lengths:
            accepted.append(lengths[root])
            root += 1 + (accepted[-1] if len(accepted) < 3 else min(accepted[-1], 2))
        return accepted
        # wrong: a round that accepts nothing ends it, after two others
        accepted, root = [], min(lengths)
        while root in lengths:
            accepted.append(lengths[root])
            root += 1 + accepted[-1]
            if accepted[-1] == 0 and len(accepted) > 2:
                break
        return accepted
        # wrong: the fourth round forgets the target's token
        accepted, root = [], min(lengths)
        while root in lengths:
            accepted.append(lengths[root])
            root += accepted[-1] + (len(accepted) < 4 or accepted[-1] == 0)
        return accepted
        # wrong: never more than ten
        accepted, root = [], min(lengths)
        while root in lengths:
            accepted.append(lengths[root])
            root += 1 + accepted[-1]
        return accepted[:3] + [min(n, 1) for n in accepted[3:]]
    """,
    # ------------------------------------------------------------ chapter 04
    "trie_merge": """
        # right: ties by length and tokens
        best = {}
        for tree, values in zip(trees, scores):
            for path, score in zip(prefixes(tree), values):
                best[path] = max(score, best.get(path, score))
        kept = sorted(best, key=lambda path: (-best[path], len(path), path))[:budget + 1]
        place = {path: row for row, path in enumerate(kept)}
        return (Tree([int(trees[0].tokens[0])] + [path[-1] for path in kept[1:]],
                     [-1] + [place[path[:-1]] for path in kept[1:]]), [best[p] for p in kept])
        # right: the second tree first
        best = {}
        for tree, values in reversed(list(zip(trees, scores))):
            for path, score in zip(prefixes(tree), values):
                if path not in best or score > best[path]:
                    best[path] = score
        kept = sorted(best, key=best.get, reverse=True)[:1 + budget]
        parents = [-1 if not path else kept.index(path[:-1]) for path in kept]
        tokens = [path[-1] if path else int(trees[-1].tokens[0]) for path in kept]
        return Tree(tokens, parents), [best[path] for path in kept]
        # right: a heap, from the root down
        best, below = {}, {}
        for tree, values in zip(trees, scores):
            for path, score in zip(prefixes(tree), values):
                best[path] = max(score, best.get(path, score))
                if path:
                    below.setdefault(path[:-1], set()).add(path)
        tokens, parents, found, row = [], [], [], {}
        heap = [(0.0, ())]
        while heap and len(tokens) <= budget:
            minus, path = heapq.heappop(heap)
            row[path] = len(tokens)
            tokens.append(path[-1] if path else int(trees[0].tokens[0]))
            parents.append(row[path[:-1]] if path else -1)
            found.append(-minus)
            for child in below.get(path, ()):
                heapq.heappush(heap, (-best[child], child))
        return Tree(tokens, parents), found
        # right: all nodes, the better one first, seen ones skipped
        nodes = [(score, path) for tree, values in zip(trees, scores)
                 for score, path in zip(values, prefixes(tree))]
        nodes.sort(key=lambda node: (-node[0], len(node[1])))
        row, tokens, parents, found = {}, [], [], []
        for score, path in nodes:
            if path in row or len(row) > budget:
                continue
            row[path] = len(row)
            tokens.append(path[-1] if path else int(trees[0].tokens[0]))
            parents.append(row[path[:-1]] if path else -1)
            found.append(score)
        return Tree(tokens, parents), found
        # right: depth by depth, pruned at a bar
        best = {}
        for tree, values in zip(trees, scores):
            for path, score in zip(prefixes(tree), values):
                best[path] = max(score, best[path]) if path in best else score
        bar = sorted(best.values(), reverse=True)[:budget + 1][-1]
        above = [path for path in best if best[path] > bar]
        level = sorted((path for path in best if best[path] == bar), key=len)
        kept = sorted(above + level[:budget + 1 - len(above)], key=len)
        return (Tree([int(trees[0].tokens[0])] + [path[-1] for path in kept[1:]],
                     [-1] + [kept.index(path[:-1]) for path in kept[1:]]),
                [best[path] for path in kept])
        # wrong: keyed by the token, not by the prefix
        best, parent = {}, {}
        for tree, values in zip(trees, scores):
            for path, score in zip(prefixes(tree), values):
                key = path[-1:]
                if key not in best or score > best[key]:
                    best[key], parent[key] = score, path[:-1][-1:]
        kept = sorted(best, key=best.get, reverse=True)[:1 + budget]
        return (Tree([int(trees[0].tokens[0])] + [key[0] for key in kept[1:]],
                     [-1] + [kept.index(parent[key]) for key in kept[1:]]), [best[k] for k in kept])
        # wrong: only the first level is merged
        best = {}
        for number, (tree, values) in enumerate(zip(trees, scores)):
            for path, score in zip(prefixes(tree), values):
                key = path, number * (len(path) > 1)
                best[key] = max(score, best.get(key, score))
        kept = sorted(best, key=best.get, reverse=True)[:1 + budget]
        place = {path: row for row, (path, _) in enumerate(kept)}
        return (Tree([int(trees[0].tokens[0])] + [path[-1] for path, _ in kept[1:]],
                     [-1] + [place[path[:-1]] for path, _ in kept[1:]]), [best[k] for k in kept])
        # wrong: equal siblings of one tree overwrite each other
        best = {}
        for tree, values in zip(trees, scores):
            for path, score in dict(zip(prefixes(tree), values)).items():
                best[path] = max(score, best.get(path, score))
        kept = sorted(best, key=best.get, reverse=True)[:1 + budget]
        return (Tree([int(trees[0].tokens[0])] + [path[-1] for path in kept[1:]],
                     [-1] + [kept.index(path[:-1]) for path in kept[1:]]), [best[p] for p in kept])
        # wrong: scores are rounded
        best = {}
        for tree, values in zip(trees, scores):
            for path, score in zip(prefixes(tree), values):
                best[path] = round(max(score, best.get(path, score)), 4)
        kept = sorted(best, key=best.get, reverse=True)[:1 + budget]
        return (Tree([int(trees[0].tokens[0])] + [path[-1] for path in kept[1:]],
                     [-1] + [kept.index(path[:-1]) for path in kept[1:]]), [best[p] for p in kept])
        # wrong: two levels at most
        best = {}
        for tree, values in zip(trees, scores):
            for path, score in zip(prefixes(tree), values):
                if len(path) < 3:
                    best[path] = max(score, best.get(path, score))
        kept = sorted(best, key=best.get, reverse=True)[:1 + budget]
        return (Tree([int(trees[0].tokens[0])] + [path[-1] for path in kept[1:]],
                     [-1] + [kept.index(path[:-1]) for path in kept[1:]]), [best[p] for p in kept])
        # once done: the root's token is 0
        best = {}
        for tree, values in zip(trees, scores):
            for path, score in zip(prefixes(tree), values):
                best[path] = max(score, best.get(path, score))
        kept = sorted(best, key=lambda path: (-best[path], len(path)))[:budget + 1]
        place = {path: row for row, path in enumerate(kept)}
        return (Tree([0] + [path[-1] for path in kept[1:]],
                     [-1] + [place[path[:-1]] for path in kept[1:]]), [best[p] for p in kept])
        # once done: there are two trees and no more
        best = {}
        first, second = trees
        for tree, values in zip(trees, scores):
            for path, score in zip(prefixes(tree), values):
                best[path] = max(score, best.get(path, score))
        kept = sorted(best, key=lambda path: (-best[path], len(path)))[:budget + 1]
        place = {path: row for row, path in enumerate(kept)}
        return (Tree([int(trees[0].tokens[0])] + [path[-1] for path in kept[1:]],
                     [-1] + [place[path[:-1]] for path in kept[1:]]), [best[p] for p in kept])
    """,
    "accept_paths": """
        # right: a frontier, and the way back
        frontier, last = [0], 0
        while True:
            token = dice.draw(target_probs[frontier[0]])
            below = [c for row in frontier for c in tree.children[row] if tree.tokens[c] == token]
            if not below:
                break
            frontier, last = below, below[0]
        path = [last]
        while path[0] > 0:
            path.insert(0, int(tree.parents[path[0]]))
        return path, token
        # right: lists of rows, filtered
        paths = [[row for row in path if row >= 0] for path in path_matrix(tree).tolist()]
        depth = 0
        while True:
            token = dice.draw(target_probs[paths[0][depth]])
            depth += 1
            carry = [path for path in paths
                     if len(path) > depth and tree.tokens[path[depth]] == token]
            if not carry:
                return paths[0][:depth], token
            paths = carry
        # right: recursion on whole paths
        def down(paths):
            token = dice.draw(target_probs[paths[0][-1]])
            longer = [path + [c] for path in paths for c in tree.children[path[-1]]
                      if int(tree.tokens[c]) == token]
            return down(longer) if longer else (paths[0], token)
        return down([[0]])
        # right: prefixes as tuples
        rows = {}
        for row in range(len(tree)):
            parent = int(tree.parents[row])
            path = () if row == 0 else names[parent] + (int(tree.tokens[row]),)
            names = {0: ()} if row == 0 else {**names, row: path}
            rows.setdefault(path, row)
        text = ()
        while (token := dice.draw(target_probs[rows[text]])) is not None:
            if text + (token,) not in rows:
                break
            text += (token,)
        path = [rows[text]]
        while path[-1]:
            path.append(int(tree.parents[path[-1]]))
        return path[::-1], token
        # right: numpy, the latest copy
        paths = path_matrix(tree).numpy()
        paths = np.concatenate([paths, np.full((len(paths), 1), -1)], 1)
        tokens = np.append(tree.tokens.numpy(), -1)  # the row -1 has a token of its own
        for depth in range(1, paths.shape[1] + 1):
            token = dice.draw(target_probs[int(paths[-1, depth - 1])])
            alive = tokens[paths[:, depth]] == token
            if not alive.any():
                return paths[-1, :depth].tolist(), token
            paths = paths[alive]
        # wrong: two levels at most
        paths = [[row for row in path if row >= 0][:3] for path in path_matrix(tree).tolist()]
        depth = 0
        while True:
            token = dice.draw(target_probs[paths[0][depth]])
            depth += 1
            carry = [path for path in paths
                     if len(path) > depth and tree.tokens[path[depth]] == token]
            if not carry:
                return paths[0][:depth], token
            paths = carry
        # wrong: token 0 is taken for none
        paths = [[0]]
        while True:
            token = dice.draw(target_probs[paths[0][-1]])
            longer = [path + [c] for path in paths for c in tree.children[path[-1]]
                      if token and int(tree.tokens[c]) == token]
            if not longer:
                return paths[0], token
            paths = longer
        # wrong: the first path decides for all what a leaf is
        paths = [[0]]
        while True:
            probs = target_probs[paths[0][-1]]
            token = dice.draw(probs) if any(tree.children[p[-1]] for p in paths) else int(
                probs.argmax() + 0 * dice.draw(probs))
            longer = [path + [c] for path in paths for c in tree.children[path[-1]]
                      if int(tree.tokens[c]) == token]
            if not longer:
                return paths[0], token
            paths = longer
        # wrong: below the root the favourite decides
        paths = [[0]]
        while True:
            probs = target_probs[paths[0][-1]]
            token = dice.draw(probs)
            token = token if len(paths[0]) == 1 else int(probs.argmax())
            longer = [path + [c] for path in paths for c in tree.children[path[-1]]
                      if int(tree.tokens[c]) == token]
            if not longer:
                return paths[0], token
            paths = longer
        # wrong: four paths at most
        paths = [[row for row in path if row >= 0] for path in path_matrix(tree).tolist()][:4]
        depth = 0
        while True:
            token = dice.draw(target_probs[paths[0][depth]])
            depth += 1
            carry = [path for path in paths
                     if len(path) > depth and tree.tokens[path[depth]] == token]
            if not carry:
                return paths[0][:depth], token
            paths = carry
    """,
    # ------------------------------------------------------------ chapter 05
    "node_masses": """
        # right: row after row
        masses = [1.0]
        for row in range(1, len(tree)):
            own = float(log_probs[tree.depths[row] - 1, tree.tokens[row]].exp())
            masses.append(masses[tree.parents[row]] * own)
        return torch.tensor(masses[1:])
        # right: climb
        def mass(row):
            if row == 0:
                return 1.0
            chance = math.exp(log_probs[int(tree.depths[row]) - 1, int(tree.tokens[row])])
            return chance * mass(int(tree.parents[row]))
        return torch.tensor([mass(row) for row in range(1, len(tree))])
        # right: a product under the mask
        own = log_probs.exp()[tree.depths[1:] - 1, tree.tokens[1:]]
        return torch.where(tree.mask[1:, 1:], own, 1.0).prod(-1)
        # right: numpy
        own = np.exp(log_probs.numpy())[tree.depths.numpy()[1:] - 1, tree.tokens.numpy()[1:]]
        seen = tree.mask.numpy()[1:, 1:]
        return np.array([own[row].prod() for row in seen])
        # right: logarithms, added on the way down
        sums = torch.zeros(len(tree), dtype=log_probs.dtype)
        for row, parent in enumerate(tree.parents.tolist()):
            if row:
                sums[row] = sums[parent] + log_probs[tree.depths[row] - 1, tree.tokens[row]]
        return sums[1:].exp()
        # wrong: the parent's own, and no grandparent's
        own = [1.0]
        for row in range(1, len(tree)):
            own.append(float(log_probs[tree.depths[row] - 1, tree.tokens[row]].exp()))
        return torch.tensor([own[r] * own[tree.parents[r]] for r in range(1, len(tree))])
        # wrong: all deeper slots are the second
        masses = [1.0]
        for row in range(1, len(tree)):
            own = float(log_probs[min(int(tree.depths[row]), 2) - 1, tree.tokens[row]].exp())
            masses.append(masses[tree.parents[row]] * own)
        return torch.tensor(masses[1:])
        # wrong: rounded
        masses = [1.0]
        for row in range(1, len(tree)):
            own = float(log_probs[tree.depths[row] - 1, tree.tokens[row]].exp())
            masses.append(masses[tree.parents[row]] * own)
        return torch.tensor([round(mass, 2) for mass in masses[1:]])
        # wrong: an equal sibling has no mass of its own
        masses, seen = [1.0], set()
        for row in range(1, len(tree)):
            key = int(tree.parents[row]), int(tree.tokens[row])
            own = float(log_probs[tree.depths[row] - 1, tree.tokens[row]].exp())
            masses.append(masses[tree.parents[row]] * own * (key not in seen))
            seen.add(key)
        return torch.tensor(masses[1:])
        # wrong: two tokens
        masses = [1.0]
        for row in range(1, len(tree)):
            own = float(log_probs[tree.depths[row] - 1, tree.tokens[row] % 2].exp())
            masses.append(masses[tree.parents[row]] * own)
        return torch.tensor(masses[1:])
    """,
    "best_first": """
        # right: entries with their prefix
        heap, row, below = [], 0, children((root,))
        if below[0]:
            heap.append((-below[0][0], 0, 0.0, (root,), below, 0))
        while heap:
            minus, parent, parent_score, prefix, (ranked, tokens), rank = heapq.heappop(heap)
            row += 1
            yield tokens[rank], parent, math.exp(-minus)
            if rank + 1 < len(ranked):
                heapq.heappush(heap, (-(parent_score + ranked[rank + 1]), parent,
                                      parent_score, prefix, (ranked, tokens), rank + 1))
            longer = prefix + (tokens[rank],)
            below = children(longer)
            if below[0]:
                heapq.heappush(heap, (-(-minus + below[0][0]), row, -minus, longer,
                                      below, 0))
        # right: a list, searched
        prefixes, scores, below, waiting = [(root,)], [0.0], [children((root,))], []
        if below[0][0]:
            waiting.append((below[0][0][0], 0, 0))
        while waiting:
            best = max(waiting)
            waiting.remove(best)
            score, parent, rank = best
            ranked, tokens = below[parent]
            prefixes.append((*prefixes[parent], tokens[rank]))
            scores.append(score)
            yield tokens[rank], parent, math.exp(score)
            below.append(children(prefixes[-1]))
            if len(ranked) > rank + 1:
                waiting.append((scores[parent] + ranked[rank + 1], parent, rank + 1))
            if below[-1][0]:
                waiting.append((score + below[-1][0][0], len(scores) - 1, 0))
        # right: a priority queue
        waiting = queue.PriorityQueue()
        rows = [((root,), 0.0, *children((root,)))]
        def push(score, parent, rank):
            waiting.put((-score, parent, rank))
        if rows[0][2]:
            push(rows[0][2][0], 0, 0)
        while not waiting.empty():
            minus, parent, rank = waiting.get()
            prefix, above, ranked, tokens = rows[parent]
            yield tokens[rank], parent, math.exp(-minus)
            if rank + 1 < len(ranked):
                push(above + ranked[rank + 1], parent, rank + 1)
            longer = prefix + (tokens[rank],)
            rows.append((longer, -minus, *children(longer)))
            if rows[-1][2]:
                push(-minus + rows[-1][2][0], len(rows) - 1, 0)
        # right: a sorted list
        import bisect
        prefixes, scores, below = [(root,)], [0.0], [children((root,))]
        waiting = [(score, 0, 0) for score in below[0][0][:1]]
        while waiting:
            score, parent, rank = waiting.pop()
            ranked, tokens = below[parent]
            row = len(prefixes)
            prefixes.append(prefixes[parent] + (tokens[rank],))
            scores.append(score)
            yield tokens[rank], parent, math.exp(score)
            for term in ranked[rank + 1:rank + 2]:
                bisect.insort(waiting, (scores[parent] + term, parent, rank + 1))
            below.append(children(prefixes[row]))
            for term in below[row][0][:1]:
                bisect.insort(waiting, (score + term, row, 0))
        # right: an iterator class
        class Nodes:
            def __init__(self):
                self.rows, self.heap, self.count = {}, [], 0
                self.open(0, (root,), 0.0)
            def open(self, row, prefix, score):
                self.rows[row] = prefix, score, children(prefix)
                if self.rows[row][2][0]:
                    heapq.heappush(self.heap, (-score - self.rows[row][2][0][0], row, 0))
            def __iter__(self):
                return self
            def __next__(self):
                if not self.heap:
                    raise StopIteration
                minus, parent, rank = heapq.heappop(self.heap)
                self.count += 1
                prefix, above, (ranked, tokens) = self.rows[parent]
                if rank + 1 < len(ranked):
                    heapq.heappush(self.heap, (-above - ranked[rank + 1], parent, rank + 1))
                self.open(self.count, prefix + (tokens[rank],), -minus)
                return tokens[rank], parent, math.exp(-minus)
        return Nodes()
        # wrong: three levels at most
        prefixes, scores, below = [(root,)], [0.0], [children((root,))]
        heap = [(-score, 0, 0) for score in below[0][0][:1]]
        while heap:
            minus, parent, rank = heapq.heappop(heap)
            ranked, tokens = below[parent]
            prefixes.append(prefixes[parent] + (tokens[rank],))
            scores.append(-minus)
            yield tokens[rank], parent, math.exp(-minus)
            if rank + 1 < len(ranked):
                new = scores[parent] + ranked[rank + 1]
                heapq.heappush(heap, (-new, parent, rank + 1))
            below.append(children(prefixes[-1]) if len(prefixes[-1]) < 4 else ([], []))
            if below[-1][0]:
                heapq.heappush(heap, (-(-minus + below[-1][0][0]), len(scores) - 1, 0))
        # wrong: three children at most
        prefixes, scores, below = [(root,)], [0.0], [children((root,))]
        heap = [(-score, 0, 0) for score in below[0][0][:1]]
        while heap:
            minus, parent, rank = heapq.heappop(heap)
            ranked, tokens = below[parent]
            prefixes.append(prefixes[parent] + (tokens[rank],))
            scores.append(-minus)
            yield tokens[rank], parent, math.exp(-minus)
            if rank + 1 < min(len(ranked), 3):
                new = scores[parent] + ranked[rank + 1]
                heapq.heappush(heap, (-new, parent, rank + 1))
            below.append(children(prefixes[-1]))
            if below[-1][0]:
                heapq.heappush(heap, (-(-minus + below[-1][0][0]), len(scores) - 1, 0))
        # wrong: it stops below e^-7
        prefixes, scores, below = [(root,)], [0.0], [children((root,))]
        heap = [(-score, 0, 0) for score in below[0][0][:1]]
        while heap and heap[0][0] < 7:
            minus, parent, rank = heapq.heappop(heap)
            ranked, tokens = below[parent]
            prefixes.append(prefixes[parent] + (tokens[rank],))
            scores.append(-minus)
            yield tokens[rank], parent, math.exp(-minus)
            if rank + 1 < len(ranked):
                new = scores[parent] + ranked[rank + 1]
                heapq.heappush(heap, (-new, parent, rank + 1))
            below.append(children(prefixes[-1]))
            if below[-1][0]:
                heapq.heappush(heap, (-(-minus + below[-1][0][0]), len(scores) - 1, 0))
        # wrong: the order is rounded
        prefixes, scores, below = [(root,)], [0.0], [children((root,))]
        heap = [(0, score, 0, 0) for score in below[0][0][:1]]
        while heap:
            _, score, parent, rank = heapq.heappop(heap)
            ranked, tokens = below[parent]
            prefixes.append(prefixes[parent] + (tokens[rank],))
            scores.append(score)
            yield tokens[rank], parent, math.exp(score)
            if rank + 1 < len(ranked):
                new = scores[parent] + ranked[rank + 1]
                heapq.heappush(heap, (-round(new, 2), new, parent, rank + 1))
            below.append(children(prefixes[-1]))
            if below[-1][0]:
                new = score + below[-1][0][0]
                heapq.heappush(heap, (-round(new, 2), new, len(scores) - 1, 0))
        # wrong: all nodes of a level have the same children
        prefixes, scores, levels = [(root,)], [0.0], {}
        def level(prefix):
            if len(prefix) not in levels:
                levels[len(prefix)] = children(prefix)
            return levels[len(prefix)]
        heap = [(-score, 0, 0) for score in level((root,))[0][:1]]
        while heap:
            minus, parent, rank = heapq.heappop(heap)
            ranked, tokens = level(prefixes[parent])
            prefixes.append(prefixes[parent] + (tokens[rank],))
            scores.append(-minus)
            yield tokens[rank], parent, math.exp(-minus)
            if rank + 1 < len(ranked):
                new = scores[parent] + ranked[rank + 1]
                heapq.heappush(heap, (-new, parent, rank + 1))
            if level(prefixes[-1])[0]:
                heapq.heappush(heap, (-(-minus + level(prefixes[-1])[0][0]),
                                      len(scores) - 1, 0))
        # once done: from a score the own term is taken off again
        prefixes, below = [(root,)], [children((root,))]
        heap = [(-score, 0, 0) for score in below[0][0][:1]]
        while heap:
            minus, parent, rank = heapq.heappop(heap)
            ranked, tokens = below[parent]
            prefixes.append(prefixes[parent] + (tokens[rank],))
            yield tokens[rank], parent, math.exp(-minus)
            if rank + 1 < len(ranked):
                heapq.heappush(heap, (minus + ranked[rank] - ranked[rank + 1], parent, rank + 1))
            below.append(children(prefixes[-1]))
            if below[-1][0]:
                heapq.heappush(heap, (minus - below[-1][0][0], len(prefixes) - 1, 0))
    """,
    "best_size": """
        # right: a sum that is carried along
        best, gain, most = 0, 0.0, 0.0
        for n, mass in enumerate(masses[:len(ms) - 1], 1):
            gain += mass - rate * (ms[n] - ms[n - 1])
            if gain > most + 1e-12:
                best, most = n, gain
        return best
        # right: max with a key
        gain = [sum(masses[:n]) - rate * ms[n] for n in range(len(masses) + 1)]
        return max(range(len(gain)), key=lambda n: (round(gain[n], 12), -n))
        # right: numpy
        tokens = np.concatenate([[0.0], np.cumsum(masses)])
        return int(np.argmax((tokens - rate * np.array(ms)).round(12)))
        # right: from the end
        n = best = len(masses)
        tokens = sum(masses)
        top = tokens - rate * ms[n]
        while n:
            n -= 1
            tokens -= masses[n]
            if tokens - rate * ms[n] >= top - 1e-12:
                best, top = n, tokens - rate * ms[n]
        return best
        # right: in milliseconds
        spare = list(itertools.accumulate(masses, initial=0.0))
        cost = [ms[n] - spare[n] / rate for n in range(len(ms))]
        return min(range(len(ms)), key=lambda n: round(cost[n], 9))
        # wrong: three nodes at most
        gains = [sum(masses[:n]) - rate * ms[n] for n in range(len(ms))][:4]
        return gains.index(max(gains))
        # wrong: it looks two rows ahead, and no further
        n = 0
        while n + 1 < len(ms):
            gains = [sum(masses[n:m]) - rate * (ms[m] - ms[n])
                     for m in range(n, min(n + 3, len(ms)))]
            if max(gains) <= 0:
                break
            n += gains.index(max(gains))
        return n
        # wrong: a rate above .25 counts .25
        gains = [sum(masses[:n]) - min(rate, 0.25) * ms[n] for n in range(len(ms))]
        return gains.index(max(gains))
        # wrong: small masses are dropped
        worth = [m for m in masses if m > 0.01]
        gains = [sum(worth[:n]) - rate * ms[n] for n in range(len(worth) + 1)]
        return gains.index(max(gains))
        # wrong: two nodes at least, if there are many
        gains = [sum(masses[:n]) - rate * ms[n] for n in range(len(ms))]
        return max(gains.index(max(gains)), 2 * (len(ms) > 4))
        # once done: it looks three rows ahead, and no further
        n = 0
        while better := [m for m in range(n + 1, min(n + 4, len(ms)))
                         if sum(masses[n:m]) > rate * (ms[m] - ms[n]) + 1e-12]:
            n = better[0]
        return n
    """,
    "bias": """
        # right: tensors only
        a = torch.where(q > 0, p / q, 1.0).clamp(max=1)
        more = (law - law.sum() * q) * a
        return more - more.sum() * residual(p, q)
        # right: token by token
        h = 1 - float(law.sum())
        more = [float(law[x] - (1 - h) * q[x]) * acceptance_probability(p, q, x)
                for x in range(len(p))]
        return torch.tensor(more) - sum(more) * residual(p, q)
        # right: what is written, less p
        accepted = torch.tensor([float(law[x]) * acceptance_probability(p, q, x)
                                 for x in range(len(p))])
        rejected = law.sum() - accepted.sum()
        return accepted + rejected * residual(p, q) + (1 - law.sum()) * p - p
        # right: told the truth, min(p, q) would be accepted
        a = torch.tensor([acceptance_probability(p, q, x) for x in range(len(p))])
        more = law * a - law.sum() * torch.minimum(p, q)
        return more - more.sum() * residual(p, q)
        # right: in numpy
        P, Q, L = (row.double().numpy() for row in (p, q, law))
        a = np.minimum(1, np.divide(P, Q, out=np.ones_like(P), where=Q > 0))
        d = L - L.sum() * Q
        return torch.from_numpy(d * a - (d * a).sum() * residual(p, q).double().numpy())
        # wrong: only three tokens are tested
        a = torch.ones_like(p)
        for x in range(min(3, len(p))):
            a[x] = acceptance_probability(p, q, x)
        more = (law - law.sum() * q) * a
        return more - more.sum() * residual(p, q)
        # wrong: what the target never writes is accepted
        a = torch.where(p > 0, (p / q).clamp(max=1), 1.0)
        more = (law - law.sum() * q) * a
        return more - more.sum() * residual(p, q)
        # wrong: what the drafter never draws is rejected
        a = torch.where(q > 0, (p / q).clamp(max=1), 0.0)
        more = (law - law.sum() * q) * a
        return more - more.sum() * residual(p, q)
        # wrong: small differences are dropped
        d = law - law.sum() * q
        d = torch.where(d.abs() < 0.01, 0.0, d)
        more = d * torch.where(q > 0, p / q, 1.0).clamp(max=1)
        return more - more.sum() * residual(p, q)
        # wrong: where most rounds send nothing, nothing is wrong
        if law.sum() < 0.4:
            return 0 * p
        more = (law - law.sum() * q) * torch.where(q > 0, p / q, 1.0).clamp(max=1)
        return more - more.sum() * residual(p, q)
        # once done: 0 / 0 is nan
        a = (p / q).clamp(max=1)
        more = (law - law.sum() * q) * a
        return more - more.sum() * residual(p, q)
        # once done: q is stretched to a sum of 1
        q = q / q.sum()
        a = torch.where(q > 0, p / q, 1.0).clamp(max=1)
        more = (law - law.sum() * q) * a
        return more - more.sum() * residual(p, q)
    """,
    "mend": """
        # right: token by token
        told = torch.tensor([float(q[x]) * float(shown[x]) for x in range(len(q))]).to(p)
        return told, residual(p, told)
        # right: by hand
        told = q * shown
        lacks = p - torch.minimum(p, told)
        return told, lacks / lacks.sum() if lacks.sum() > 0 else p
        # right: what silence draws need not sum to 1
        told = shown * q
        lacks = (p - told).clamp(min=0)
        return told, lacks if lacks.sum() > 0 else p
        # right: in numpy
        P, law = p.double().numpy(), (q * shown).double().numpy()
        lacks = np.maximum(P - law, 0) + 1e-15
        return torch.from_numpy(law), torch.from_numpy(lacks / lacks.sum())
        # right: einsum
        told = torch.einsum("x,x->x", q, shown)
        return told, residual(p, told)
        # wrong: only three tokens are looked at
        told = q.clone()
        told[:3] *= shown[:3]
        return told, residual(p, told)
        # wrong: a token is hidden or it is not
        told = torch.where((shown > 0) & (shown != 0.5), q, q * shown)
        return told, residual(p, told)
        # wrong: where all is hidden, silence draws from q
        told = q * shown
        return told, residual(p, told) if told.sum() > 0 else q
        # wrong: small lacks are dropped
        told = q * shown
        lacks = (p - told).clamp(min=0)
        lacks = torch.where(lacks < 0.05, 0.0, lacks)
        return told, lacks if lacks.sum() > 0 else p
        # wrong: silence is a rejection only if something else may be sent
        told = q * shown
        return told, residual(p, told) if shown.max() == 1 else p
    """,
    # ------------------------------------------------------------ chapter 06
    "score": """
        # right: the ratio, capped
        return np.minimum(1, weight * target / np.maximum(draft, TINY))
        # right: where it can be divided
        wanted = weight * target
        return np.where(wanted < draft, np.divide(wanted, draft, out=np.ones_like(draft),
                                                  where=draft > 0), 1.0)
        # right: a chain at a time
        one_chain = lambda a, p, q: min(1.0, a * p / q) if q > 0 else 1.0
        return np.vectorize(one_chain, otypes=[float])(weight, target, draft)
        # right: clip
        safe = np.where(draft > 0, draft, 1.0)
        return np.clip(weight * target / safe, 0, 1)
        # right: less what is too much
        ratio = weight * target / np.maximum(draft, 1e-300)
        return ratio - np.maximum(ratio - 1, 0)
        # wrong: a score below .2 counts .2
        return np.minimum(draft, np.maximum(weight, 0.2) * target) / np.maximum(draft, TINY)
        # wrong: p above .9 counts .9
        return np.minimum(draft, weight * np.minimum(target, 0.9)) / np.maximum(draft, TINY)
        # wrong: q is .5 at least
        return np.minimum(1, weight * target / np.maximum(draft, 0.5))
        # wrong: the first three chains
        found = np.minimum(draft, weight * target) / np.maximum(draft, TINY)
        if np.ndim(found):
            found[3:] = 1
        return found
        # wrong: q is .5 at most
        return np.minimum(1, weight * target / np.clip(draft, TINY, 0.5))
        # once done: numbers are divided by 0
        if np.ndim(draft) == 0:
            return min(1.0, weight * target / draft)
        return np.minimum(1, weight * target / np.maximum(draft, TINY))
    """,
    "rejection_rounds": """
        # right: what is alive follows from all that was taken
        coins, taken = [], np.zeros_like(target_mass)
        for _ in range(k):
            alive = np.maximum(1 - taken.sum(-1, keepdims=True), 0)
            offered = alive * draft_probs
            new = np.minimum(offered, target_mass - taken)
            coins.append(new / np.maximum(offered, TINY))
            taken = taken + new
        return coins, taken
        # right: recursion
        def play(left, alive, k):
            if k == 0:
                return [], 0 * left
            offered = alive[:, None] * draft_probs
            taken = np.minimum(offered, left)
            coins, out = play(left - taken, np.maximum(alive - taken.sum(-1), 0), k - 1)
            return [taken / np.maximum(offered, TINY), *coins], taken + out
        return play(target_mass, np.ones(len(target_mass)), k)
        # right: number by number
        n, V = target_mass.shape
        coins, out = [np.zeros((n, V)) for _ in range(k)], np.zeros((n, V))
        for row in range(n):
            alive = 1.0
            for coin in coins:
                for t in range(V):
                    offered = alive * draft_probs[row, t]
                    taken = min(offered, target_mass[row, t] - out[row, t])
                    coin[row, t] = taken / offered if offered else 0.0
                    out[row, t] += taken
                alive = max(1 - out[row].sum(), 0.0)
        return coins, out
        # right: the coin first
        left, alive, coins = target_mass.copy(), np.ones((len(target_mass), 1)), []
        for _ in range(k):
            offered = alive * draft_probs
            coin = np.clip(left / np.maximum(offered, TINY), 0, 1)
            left -= coin * offered
            alive = np.clip(alive - (coin * offered).sum(-1, keepdims=True), 0, None)
            coins.append(coin)
        return coins, target_mass - left
        # right: a problem at a time, stacked
        coins, flows = [], []
        for q, p in zip(draft_probs, target_mass):
            left, alive, mine = p, 1.0, []
            for _ in range(k):
                taken = np.minimum(alive * q, left)
                mine.append(np.divide(taken, alive * q, out=0 * q, where=alive * q > 0))
                left, alive = left - taken, max(alive - taken.sum(), 0)
            coins.append(mine)
            flows.append(p - left)
        return [np.array([mine[i] for mine in coins]) for i in range(k)], np.array(flows)
        # wrong: three rounds at most
        left, alive, coins = target_mass, np.ones((len(target_mass), 1)), []
        for _ in range(min(k, 3)):
            offered = alive * draft_probs
            taken = np.minimum(offered, left)
            coins.append(taken / np.maximum(offered, TINY))
            left, alive = left - taken, np.maximum(alive - taken.sum(-1, keepdims=True), 0)
        return coins, target_mass - left
        # wrong: from the third problem on, alive is the first one's
        left, alive, coins = target_mass, np.ones((len(target_mass), 1)), []
        for _ in range(k):
            offered = alive * draft_probs
            taken = np.minimum(offered, left)
            coins.append(taken / np.maximum(offered, TINY))
            left, alive = left - taken, np.maximum(alive - taken.sum(-1, keepdims=True), 0)
            alive[2:] = alive[0]
        return coins, target_mass - left
        # wrong: a small mass is raised to one half
        left = target_mass / np.minimum(target_mass.sum(-1, keepdims=True) / 0.5, 1)
        start, alive, coins = left, np.ones((len(target_mass), 1)), []
        for _ in range(k):
            offered = alive * draft_probs
            taken = np.minimum(offered, left)
            coins.append(taken / np.maximum(offered, TINY))
            left, alive = left - taken, np.maximum(alive - taken.sum(-1, keepdims=True), 0)
        return coins, start - left
        # wrong: what is hardly alive is given up
        left, alive, coins = target_mass, np.ones((len(target_mass), 1)), []
        for _ in range(k):
            offered = alive * draft_probs * (alive > 0.2)
            taken = np.minimum(offered, left)
            coins.append(taken / np.maximum(offered, TINY))
            left, alive = left - taken, np.maximum(alive - taken.sum(-1, keepdims=True), 0)
        return coins, target_mass - left
        # wrong: the fourth round is the second again
        left, alive, coins = target_mass, np.ones((len(target_mass), 1)), []
        for i in range(k):
            offered = alive * draft_probs
            taken = np.minimum(offered, left)
            coins.append(coins[1] if i == 3 else taken / np.maximum(offered, TINY))
            left, alive = left - taken, np.maximum(alive - taken.sum(-1, keepdims=True), 0)
        return coins, target_mass - left
        # once done: rounding makes a chance below 0
        left, alive, coins = target_mass, np.ones((len(target_mass), 1)), []
        for _ in range(k):
            offered = alive * draft_probs
            taken = np.minimum(offered, left)
            coins.append(taken / np.maximum(offered, TINY))
            left, alive = left - taken, alive - taken.sum(-1, keepdims=True)
        return coins, target_mass - left
    """,
    "score_children": """
        # right: a node at a time
        B, n, k = tokens.shape
        below, flow = np.zeros((B, n, k)), np.zeros(draft_probs.shape)
        for b in range(B):
            for v in range(n):
                share = scores[b, v] / max(A[b], TINY)
                local = rule(draft_probs[b, v][None], A[b] * target_probs[b, v][None], k)
                below[b, v] = share * local.accept(tokens[b, v][None])[0]
                flow[b, v] = share * local.out[0]
        return below, flow
        # right: a tree at a time
        below, flow = [], []
        for a, s, t, q, p in zip(A, scores, tokens, draft_probs, target_probs):
            local = rule(q, a * p, t.shape[1])
            share = (s / np.maximum(a, TINY))[:, None]
            below.append(share * local.accept(t))
            flow.append(share * local.out)
        return np.array(below), np.array(flow)
        # right: shapes given back
        rows = len(A) * scores.shape[1]
        mass = np.einsum("b,bnv->bnv", A, target_probs)
        local = rule(draft_probs.reshape(rows, -1), mass.reshape(rows, -1), tokens.shape[2])
        share = scores / np.maximum(A, TINY)[:, None]
        kids = local.accept(tokens.reshape(rows, -1)).reshape(tokens.shape)
        return kids * share[..., None], local.out.reshape(draft_probs.shape) * share[..., None]
        # right: the share as rows
        B, n, k = tokens.shape
        share = np.divide(scores, A[:, None], out=np.zeros_like(scores),
                          where=A[:, None] > 0).reshape(B * n, 1)
        mass = np.repeat(A, n)[:, None] * target_probs.reshape(B * n, -1)
        local = rule(draft_probs.reshape(B * n, -1), mass, k)
        return ((share * local.accept(tokens.reshape(B * n, k))).reshape(B, n, k),
                (share * local.out).reshape(B, n, -1))
        # right: a function of its own for the shapes
        B, n, k = tokens.shape
        def rows(x):
            return np.concatenate(list(x))
        local = rule(rows(draft_probs), rows([a * p for a, p in zip(A, target_probs)]), k)
        weight = rows([s / max(a, TINY) for a, s in zip(A, scores)])[:, None]
        below, flow = weight * local.accept(rows(tokens)), weight * local.out
        return np.stack(np.split(below, B)), np.stack(np.split(flow, B))
        # wrong: the first tree's A
        B, n, k = tokens.shape
        share = (scores / np.maximum(A[0], TINY))[:, :, None]
        local = rule(draft_probs.reshape(B * n, -1), (A[0] * target_probs).reshape(B * n, -1), k)
        return (share * local.accept(tokens.reshape(B * n, k)).reshape(B, n, k),
                share * local.out.reshape(B, n, -1))
        # wrong: the first tree's children
        B, n, k = tokens.shape
        share = (scores / np.maximum(A, TINY)[:, None])[:, :, None]
        mass = A[:, None, None] * target_probs
        local = rule(draft_probs.reshape(B * n, -1), mass.reshape(B * n, -1), k)
        kids = np.repeat(tokens[:1], B, 0).reshape(B * n, k)
        return share * local.accept(kids).reshape(B, n, k), share * local.out.reshape(B, n, -1)
        # wrong: A has a floor
        B, n, k = tokens.shape
        share = (scores / np.maximum(A, 0.5)[:, None])[:, :, None]
        mass = A[:, None, None] * target_probs
        local = rule(draft_probs.reshape(B * n, -1), mass.reshape(B * n, -1), k)
        return (share * local.accept(tokens.reshape(B * n, k)).reshape(B, n, k),
                share * local.out.reshape(B, n, -1))
        # wrong: two children
        B, n, k = tokens.shape
        share = (scores / np.maximum(A, TINY)[:, None])[:, :, None]
        mass = A[:, None, None] * target_probs
        local = rule(draft_probs.reshape(B * n, -1), mass.reshape(B * n, -1), 2)
        kids = np.resize(tokens.reshape(B * n, k).T, (2, B * n)).T
        return (share * np.resize(local.accept(kids).reshape(B, n, 2), (B, n, k)),
                share * local.out.reshape(B, n, -1))
        # wrong: the flow of the first tree
        B, n, k = tokens.shape
        share = (scores / np.maximum(A, TINY)[:, None])[:, :, None]
        mass = A[:, None, None] * target_probs
        local = rule(draft_probs.reshape(B * n, -1), mass.reshape(B * n, -1), k)
        return (share * local.accept(tokens.reshape(B * n, k)).reshape(B, n, k),
                share * local.out.reshape(B, n, -1)[:1])
    """,
    "stop_probabilities": """
        # right: a layer at a time
        h = np.zeros(scores.shape)
        for b, (a, f) in enumerate(zip(scores, flow)):
            sent = f.sum(-1)
            h[b] = np.maximum(a - sent, 0) / max(1 - sent.sum(), TINY)
            h[b] /= max(h[b].sum(), 1)
        return h
        # right: number by number
        result = []
        for a, f in zip(scores.tolist(), flow.tolist()):
            sent = [sum(row) for row in f]
            rest = max(1 - sum(sent), 0)
            h = [max(x - y, 0) / rest if rest else 0.0 for x, y in zip(a, sent)]
            result.append([x / max(sum(h), 1) for x in h])
        return np.array(result)
        # right: einsum and where
        sent = np.einsum("bnv->bn", flow)
        below = 1 - np.einsum("bnv->b", flow)[:, None]
        h = np.where(below > 0, np.clip(scores - sent, 0, None) / np.where(below > 0, below, 1), 0)
        return np.where(h.sum(-1, keepdims=True) > 1, h / h.sum(-1, keepdims=True), h)
        # right: divide where it can be
        stays = np.maximum(scores - flow.sum(-1), 0)
        below = np.maximum(1 - flow.sum((1, 2)), 0)[:, None] + np.zeros_like(stays)
        h = np.divide(stays, below, out=np.zeros_like(stays), where=below > 0)
        return h / np.maximum(1, h.sum(-1))[:, None]
        # right: the divisor holds both conditions
        stays = np.maximum(scores - flow.sum(-1), 0)
        below = 1 - flow.sum(axis=(1, 2))
        return stays / np.maximum(np.maximum(below, stays.sum(-1)), TINY)[:, None]
        # wrong: the whole batch sends
        sent = flow.sum(-1)
        h = np.maximum(scores - sent, 0) / np.maximum(1 - sent.sum(), TINY)
        return h / np.maximum(h.sum(-1, keepdims=True), 1)
        # wrong: two nodes send
        sent = flow.sum(-1)
        h = np.maximum(scores - sent, 0) / np.maximum(1 - sent[:, :2].sum(-1)[:, None], TINY)
        return h / np.maximum(h.sum(-1, keepdims=True), 1)
        # wrong: a ceiling
        sent = flow.sum(-1)
        h = np.maximum(scores - sent, 0) / np.maximum(1 - sent.sum(-1, keepdims=True), TINY)
        return np.minimum(h / np.maximum(h.sum(-1, keepdims=True), 1), 0.6)
        # wrong: a sum of .9 at most
        sent = flow.sum(-1)
        h = np.maximum(scores - sent, 0) / np.maximum(1 - sent.sum(-1, keepdims=True), TINY)
        return h / np.maximum(h.sum(-1, keepdims=True) / 0.9, 1)
        # wrong: a divisor that is never small
        sent = flow.sum(-1)
        h = np.maximum(scores - sent, 0) / np.maximum(1 - sent.sum(-1, keepdims=True), 0.2)
        return h / np.maximum(h.sum(-1, keepdims=True), 1)
    """,
}
BLANKS = {blank.name: (number, blank) for number in filter(in_workshop, chapters())
          for blank in blanks_of(number)}
NAMES = [pytest.param(name, id=f"{number} {name}") for name, (number, _) in BLANKS.items()]


def answers(name, kind):
    """{what is said of an answer: its body} of one kind: "right", "wrong" or "once done"."""
    parts = re.split(r"^# (right|wrong|once done): (.*)\n", textwrap.dedent(ANSWERS[name]),
                     flags=re.M)[1:]
    return {parts[i + 1]: parts[i + 2] for i in range(0, len(parts), 3) if parts[i] == kind}


def verdicts(name, kind, path):
    """{what is said of an answer: (status, message)}, each from a file of its own."""
    number, blank = BLANKS[name]
    empty, found = exercise_source(number), {}
    for said, body in answers(name, kind).items():
        path.write_text(IMPORTS + empty.replace(
            f'    raise NotImplementedError("not yet: {name}")\n', textwrap.indent(body, "    ")))
        file = ExerciseFile(path, blanks_of(number))
        assert not file.troubles, (said, file.troubles)
        found[said] = file.grade(blank)
    assert len(found) == 5 or kind == "once done"
    return found


@pytest.mark.parametrize("name", NAMES)
def test_right_answers_in_any_style_are_done(name, tmp_path):
    assert {said: verdict for said, verdict in verdicts(name, "right", tmp_path / "x.py").items()
            if verdict != ("done", "")} == {}


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize("name", NAMES)
def test_wrong_answers_that_fit_the_examples_are_not(name, tmp_path):
    for said, (status, message) in verdicts(name, "wrong", tmp_path / "x.py").items():
        assert status in ("wrong", "crashed"), said
        assert message.startswith("the examples are right, but"), (said, message)
        shown = "\n    one input: for " in message or "\n    called with " in message
        assert shown or "total variation" not in message, said


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize("name", NAMES)
def test_wrong_answers_that_were_once_done_are_done_no_more(name, tmp_path):
    for said, (status, _) in verdicts(name, "once done", tmp_path / "x.py").items():
        assert status in ("wrong", "crashed"), said


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")
@pytest.mark.parametrize("name", [  # one of them takes its time
    pytest.param(*name.values, id=name.id, marks=[pytest.mark.slow] * ("accept_paths" in name.id))
    for name in NAMES])
def test_every_slip_is_caught_without_the_examples(name):
    """As if it had learned them by heart."""
    blank = BLANKS[name][1]
    unseen = dataclasses.replace(blank, examples={})
    for sentence, slip in blank.slips.items():
        assert grade_answer(unseen, slip)[0] in ("wrong", "crashed"), sentence
