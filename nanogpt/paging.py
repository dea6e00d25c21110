"""A KV cache in pages, and one forward for the rows of several requests.

A cache in one piece must be as long as the longest text that may come. In pages it grows with the
text: any free page will do, a table says which ones a request has, and when it ends they are free
again. So memory is lost only in each request's last page.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
PagedAttention" (2023), Section 4. Their block is our page, their block table our table.
"""

import math

import torch
import torch.nn.functional as F


class Pages:
    """Whose is which page of the caches. A page has `size` rows; a table lists a request's pages.

    Row number n of a request lies in page table[n // size]. The caches of target and drafter have
    the same pages, so a request has one table for both.
    """

    def __init__(self, count, size=16):
        self.count, self.size, self.free = count, size, list(range(count))

    def missing(self, table, rows):
        """How many pages the table lacks for so many rows."""
        return max(0, math.ceil(rows / self.size) - len(table))

    def grow(self, table, rows):
        """Add free pages to the table until it has so many rows -> False if there are too few."""
        missing = self.missing(table, rows)
        if missing > len(self.free):
            return False
        table += [self.free.pop() for _ in range(missing)]
        return True

    def release(self, table):
        """Take all pages back."""
        self.free += table
        table.clear()


class PagedModel:
    """A model that reads new rows of several requests in one forward, with its cache in pages."""

    def __init__(self, model, pages):
        self.model, self.pages = model, pages
        self.kv = {}  # {layer: (2, pages, size, n_head, head_dim)}, made by the first forward

    @torch.inference_mode()
    def read(self, new):
        """One forward. new: a list of (table, length, tokens): a request's pages, how many of its
        rows are read already, and the tokens that follow them, one or more.

        -> for each request the logits (n, V) after its n new tokens. Nothing is committed.
        """
        size, device = self.pages.size, self.model.device
        tokens = [token for _, _, own in new for token in own]  # R rows, one request after another
        positions, slots, groups = [], [], {}
        for table, length, own in new:
            # Those with equally many new rows attend together.
            groups.setdefault(len(own), []).append((len(positions), table, length))
            places = range(length, length + len(own))  # positions, and places in the table
            positions += places
            slots += [table[place // size] * size + place % size for place in places]
        self.slots = torch.tensor(slots, device=device)
        self.groups = [self.group(n, members) for n, members in groups.items()]
        positions = torch.tensor(positions, device=device)
        logits, _ = self.model.layers(
            torch.tensor([tokens], device=device), self.model.cos[positions],
            self.model.sin[positions], None, self)  # (1, R, V)
        return logits[0].split([len(own) for _, _, own in new])

    def group(self, n, members):
        """B requests with n new rows each -> their rows in the forward (B, n), their pages (B, P),
        and what each row may see of them, (B, 1, n, P * size)."""
        device = self.model.device
        most = max(length for _, _, length in members) + n
        pages = math.ceil(most / self.pages.size)
        # A shorter table is filled up with any page; the mask hides it.
        tables = torch.tensor([(table + [0] * pages)[:pages] for _, table, _ in members])
        first, length = (torch.tensor([member[i] for member in members])[:, None] for i in (0, 2))
        rows = torch.arange(n)
        # Column number c is the request's row number c: a row sees those before it, and itself.
        mask = torch.arange(pages * self.pages.size) <= (length + rows)[:, None, :, None]
        return (first + rows).to(device), tables.to(device), mask.to(device)

    def fetch(self, kv, tables):
        """Keys and values of B requests, (B, n_head, P * size, head_dim) each, side by side.

        A copy; a server's kernel reads the pages where they lie."""
        seen = kv.index_select(1, tables.flatten())  # (2, B * P, size, nh, hd)
        return seen.view(2, len(tables), -1, *kv.shape[3:]).transpose(2, 3)

    def attend(self, layer, qkv, bias, attention=F.scaled_dot_product_attention):
        """What a layer asks of its cache. qkv (3, 1, n_head, R, head_dim) -> (1, n_head, R,
        head_dim). All else of a layer knows rows only, and not whose they are."""
        q, *new = qkv[:, 0].transpose(1, 2)  # (R, n_head, head_dim) each
        if layer not in self.kv:
            self.kv[layer] = q.new_zeros(2, self.pages.count, self.pages.size, *q.shape[1:])
        kv = self.kv[layer]
        kv.flatten(1, 2).index_copy_(1, self.slots, torch.stack(new))  # a view of kv, row by row
        y = torch.empty_like(q)
        for rows, tables, mask in self.groups:
            k, v = self.fetch(kv, tables)
            y[rows] = attention(q[rows].transpose(1, 2), k, v, attn_mask=mask).transpose(1, 2)
        return y.transpose(0, 1)[None]
