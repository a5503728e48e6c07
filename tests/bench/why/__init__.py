"""Captures with a planted reason, made with the real nsys: is the first cause right?"""
